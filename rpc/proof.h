/* Checks a peer's identity: the peer sends its name and proves that it knows the job's secret,
 * without sending the secret.
 *
 *     each side    an opening with its own nonce
 *     each side    its hello, and HMAC-SHA256(secret; both openings, role, hello)
 *
 * An eavesdropper learns nothing that helps in another connection, because the nonces differ there.
 * A message cannot be reflected to its sender, because it contains the role. The proof protects the
 * beginning of a connection; a tunnel protects later messages (docs/rpc.md). */
#ifndef RPC_PROOF_H
#define RPC_PROOF_H

#include <stddef.h>
#include <stdint.h>

enum { HELLO_MAGIC = 0x48505244, WIRE_VERSION = 11 };
enum { HELLO_NAME = 128, HELLO_ADDRESS = 64, NONCE_BYTES = 32, PROOF_BYTES = 32 };

struct opening {
    uint32_t magic, version;    /* in the machine's byte order, so a mismatch fails here */
    uint8_t nonce[NONCE_BYTES]; /* random, for each connection */
};

struct hello {
    int32_t rank, world;
    char name[HELLO_NAME];
    char address[HELLO_ADDRESS]; /* where it listens: "HOST:PORT"; "": nowhere, or where all know */
};

/* ERR_USAGE: the peer is not a worker, or has another version. */
int opening_check(const struct opening *opening);

/* Returns 1 if the name has 1 to 127 letters, digits, or characters of `others`. NULL is fine. */
int name_is_good(const char *name, const char *others);
int worker_name_check(const char *name); /* `others` are "_", ":" and "-" */

/* Call it after the hello's proof has been checked. ERR_USAGE: the peer was started for another
 * world, has a rank outside it, or an invalid name. */
int hello_check(const struct hello *hello, const struct hello *own);

/* What a side proves: the HMAC of all its bytes. */
struct statement {
    struct opening own, peer;
    enum proof_role { ROLE_DIALS = 1, ROLE_LISTENS } role;
    struct hello hello;
};

/* The secret and the data: at most 960 bytes each. */
void hmac_sha256(uint8_t out[PROOF_BYTES], const char *secret, const void *data, size_t bytes);

/* Compares in constant time. ERR_USAGE: a peer with the secret, which states this, makes another
 * proof. */
int proof_check(const uint8_t proof[PROOF_BYTES], const char *secret,
                const struct statement *statement);

/* A name that does not reveal the secret: for the abstract sockets of a job. */
void proof_name(char *out, size_t bytes, const char *secret);

#endif
