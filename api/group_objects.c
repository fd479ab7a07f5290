/* Process groups: bytes of any length. */
#include <stddef.h>

#include "api/group_call.h"

_Static_assert(sizeof(struct duet_object) == sizeof(struct group_object) &&
                   offsetof(struct duet_object, bytes) == offsetof(struct group_object, bytes),
               "duet.h repeats it");

static int check_objects(const char *name, const duet_group *group, const void *list, int count) {
    if (!group)
        return fail(ERR_USAGE, "%s: no group was given: this rank is not in it, or left it", name);
    if (count < 0) return fail(ERR_USAGE, "%s: %d objects: give 0 or more", name, count);
    if (!list && count) return fail(ERR_USAGE, "%s: no objects were given", name);
    return OK;
}

/* Objects that this rank gives: bytes without a place are a mistake. */
static int check_given(const char *name, const struct duet_object *list, int count) {
    for (int i = 0; i < count; i++)
        if (list[i].bytes && !list[i].data)
            return fail(ERR_USAGE, "%s: object %d: %zu bytes at NULL", name, i, list[i].bytes);
    return OK;
}

int duet_broadcast_object_list(duet_group *group, struct duet_object *list, int count, int root) {
    static const char name[] = "broadcast_object_list";
    CHECK(check_objects(name, group, list, count));
    if (duet_group_rank(group) == root) CHECK(check_given(name, list, count));
    return group_broadcast_objects(group_of(group), (struct group_object *)list, count, root);
}

int duet_all_gather_object(duet_group *group, struct duet_object *list,
                           const struct duet_object *object) {
    static const char name[] = "all_gather_object";
    CHECK(check_objects(name, group, list && object ? list : NULL, 1));
    CHECK(check_given(name, object, 1));
    return group_gather_objects(group_of(group), (struct group_object *)list,
                                (const struct group_object *)object, -1);
}

int duet_gather_object(duet_group *group, struct duet_object *list,
                       const struct duet_object *object, int root) {
    static const char name[] = "gather_object";
    CHECK(check_objects(name, group, object, 1));
    CHECK(check_given(name, object, 1));
    if (root < 0) return fail(ERR_USAGE, "%s: root %d: give a rank of the group", name, root);
    if (duet_group_rank(group) == root) CHECK(check_objects(name, group, list, 1));
    return group_gather_objects(group_of(group), (struct group_object *)list,
                                (const struct group_object *)object, root);
}

int duet_scatter_object_list(duet_group *group, struct duet_object *object,
                             const struct duet_object *list, int root) {
    static const char name[] = "scatter_object_list";
    CHECK(check_objects(name, group, object, 1));
    if (duet_group_rank(group) == root) {
        CHECK(check_objects(name, group, list, 1));
        CHECK(check_given(name, list, duet_group_size(group)));
    }
    return group_scatter_objects(group_of(group), (struct group_object *)object,
                                 (const struct group_object *)list, root);
}

int duet_send_object_list(duet_group *group, const struct duet_object *list, int count, int to) {
    static const char name[] = "send_object_list";
    CHECK(check_objects(name, group, list, count));
    CHECK(check_given(name, list, count));
    if (to < 0) return fail(ERR_USAGE, "%s: to rank %d: give a rank of the group", name, to);
    return group_send_objects(group_of(group), (const struct group_object *)list, count, to);
}

int duet_recv_object_list(duet_group *group, struct duet_object *list, int count, int from,
                          int *source) {
    CHECK(check_objects("recv_object_list", group, list, count));
    return group_recv_objects(group_of(group), (struct group_object *)list, count, from, source);
}
