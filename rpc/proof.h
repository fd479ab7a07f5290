/* The proof that a peer knows the job's secret, without the secret on the wire.
 *
 *     each side    an opening with a nonce of its own
 *     each side    its hello, and HMAC-SHA256(secret; role, own nonce, peer's nonce, hello)
 *
 * Who listens in learns nothing that helps in another connection, whose nonces are others; and what
 * a side has said cannot be said back to it, since the role is in it. That proves who a peer was at
 * the beginning; against who can change what travels afterwards a tunnel helps (docs/rpc.md). */
#ifndef RPC_PROOF_H
#define RPC_PROOF_H

#include "rpc/frame.h"

enum proof_role { ROLE_DIALS = 1, ROLE_LISTENS };

void hmac_sha256(uint8_t out[PROOF_BYTES], const char *secret, const void *data, size_t bytes);

/* What one side says about itself. The nonces: its own, and that of its peer. */
void proof_make(uint8_t proof[PROOF_BYTES], const char *secret, enum proof_role role,
                const uint8_t *own, const uint8_t *peer, const struct hello *hello);

/* ERR_USAGE: it is not the proof that a peer with the secret makes; compares in constant time.
 * role and nonces are those of the peer: `own` is its own. */
int proof_check(const uint8_t proof[PROOF_BYTES], const char *secret, enum proof_role role,
                const uint8_t *own, const uint8_t *peer, const struct hello *hello);

/* A name that tells nobody the secret: of the abstract sockets of a job. */
void proof_name(char *out, size_t bytes, const char *secret);

#endif
