/* Proofs by HMAC-SHA256 of mbed TLS, which NNG uses too: see proof.h. */
#include "rpc/proof.h"

#include <mbedtls/md.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static void hmac(uint8_t out[PROOF_BYTES], const char *secret, const void *data, size_t bytes) {
    mbedtls_md_hmac(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), (const uint8_t *)secret,
                    strlen(secret), data, bytes, out);
}

void proof_make(uint8_t proof[PROOF_BYTES], const char *secret, enum proof_role role,
                const uint8_t *own, const uint8_t *peer, const struct hello *hello) {
    uint8_t said[1 + 2 * NONCE_BYTES + sizeof *hello], *at = said;
    *at++ = (uint8_t)role;
    memcpy(at, own, NONCE_BYTES);
    memcpy(at + NONCE_BYTES, peer, NONCE_BYTES);
    memcpy(at + 2 * NONCE_BYTES, hello, sizeof *hello);
    hmac(proof, secret, said, sizeof said);
}

int proof_check(const uint8_t proof[PROOF_BYTES], const char *secret, enum proof_role role,
                const uint8_t *own, const uint8_t *peer, const struct hello *hello) {
    uint8_t right[PROOF_BYTES];
    unsigned differ = 0;
    proof_make(right, secret, role, own, peer, hello);
    for (int i = 0; i < PROOF_BYTES; i++)
        differ |= (unsigned)(proof[i] ^ right[i]);
    return differ ? fail(ERR_USAGE, "rpc: a peer does not know the job's secret") : OK;
}

void proof_name(char *out, size_t bytes, const char *secret) {
    uint8_t code[PROOF_BYTES];
    hmac(code, secret, "name", 4);
    for (size_t i = 0; i < 8 && 2 * i + 2 < bytes; i++)
        snprintf(out + 2 * i, bytes - 2 * i, "%02x", code[i]);
}
