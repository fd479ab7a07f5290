/* Checks who a peer is: it says its name and proves that it knows the job's secret, without sending
 * the secret.
 *
 *     each side    an opening with its own nonce
 *     each side    its hello, and HMAC-SHA256(secret; role, own nonce, peer's nonce, hello)
 *
 * An eavesdropper learns nothing that helps in another connection, because the nonces differ there.
 * A message cannot be sent back to the side that made it, because it contains the role. The proof
 * holds for the beginning of a connection; against changes to later messages a tunnel helps
 * (docs/rpc.md). */
#ifndef RPC_PROOF_H
#define RPC_PROOF_H

#include <stddef.h>
#include <stdint.h>

enum { HELLO_MAGIC = 0x48505244, WIRE_VERSION = 10 };
enum { HELLO_NAME = 128, PLACE_BYTES = 64, NONCE_BYTES = 32, PROOF_BYTES = 32 };

struct opening {
    uint32_t magic, version;    /* in the machine's own byte order: another one fails here */
    uint8_t nonce[NONCE_BYTES]; /* drawn for each connection */
};

struct hello {
    int32_t rank, world;
    char name[HELLO_NAME];
    char place[PLACE_BYTES]; /* where it listens: "HOST:PORT"; "": nowhere, or all know it */
};

/* ERR_USAGE: the peer is not a worker, or has another version. */
int opening_check(const struct opening *opening);

/* 1: it has 1 to 127 letters, digits, or one of `others`. NULL is fine. */
int name_is_good(const char *name, const char *others);
int worker_name_check(const char *name); /* the others are "_", ":" and "-" */

/* ERR_USAGE: the peer was started for another world, has a rank that is not in it, or no proper
 * name. To be called once the hello's proof has been checked. */
int hello_check(const struct hello *hello, const struct hello *own);

enum proof_role { ROLE_DIALS = 1, ROLE_LISTENS };

/* The secret and the data: at most 960 bytes each. */
void hmac_sha256(uint8_t out[PROOF_BYTES], const char *secret, const void *data, size_t bytes);

/* What one side says about itself. The nonces: its own, and that of its peer. */
void proof_make(uint8_t proof[PROOF_BYTES], const char *secret, enum proof_role role,
                const uint8_t *own, const uint8_t *peer, const struct hello *hello);

/* ERR_USAGE: it is not the proof that a peer with the secret makes; compares in constant time.
 * role and nonces are those of the peer: `own` is its own. */
int proof_check(const uint8_t proof[PROOF_BYTES], const char *secret, enum proof_role role,
                const uint8_t *own, const uint8_t *peer, const struct hello *hello);

/* A name that does not reveal the secret: for the abstract sockets of a job. */
void proof_name(char *out, size_t bytes, const char *secret);

#endif
