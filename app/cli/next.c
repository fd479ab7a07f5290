/* The last words of the demo: how this program is called from here on, and what to call next. */
#include "cli/next.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/program_name.h"
#include "models/model_file.h"

/* The path of this program, from this folder if it lies below. */
static const char *call_of_self(char text[PATH_MAX]) {
    char here[PATH_MAX], self[PATH_MAX] = "";
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) return program_name();
    size_t below = getcwd(here, sizeof here) ? strlen(here) : 0;
    int is_below = below && !strncmp(self, here, below) && self[below] == '/';
    snprintf(text, PATH_MAX, "%s", is_below ? self + below + 1 : self);
    return text;
}

void next_commands(const struct duet_model *own) {
    const struct model_file *file = model_file_of(own);
    const char *option = own && !file ? "" : " --model ", *name = own ? "" : "resnet18";
    char path[PATH_MAX];
    const char *duet = call_of_self(path);
    printf("\nNext, each a matter of seconds:\n");
    if (!own)
        printf("  the ring, drawn for slides\n"
               "    %s collective --ranks 4 --pictures pictures\n",
               duet);
    if (file) name = file->path;
    printf("  what each device would hold and move, computed without a run\n"
           "    %s estimate --devices 4%s%s\n"
           "  where the time goes, as a page for the browser\n"
           "    %s profile --steps 20%s%s --report page.html\n",
           duet, option, name, duet, file ? option : "", file ? name : "");
}
