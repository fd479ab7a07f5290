/* Proofs by HMAC-SHA256 (RFC 2104, FIPS 180-4): see proof.h. */
#include "rpc/proof.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* ---- SHA-256 ---- */

enum { BLOCK_BYTES = 64, MOST_BYTES = 1024 };

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int bits) {
    return x >> bits | x << (32 - bits);
}

static void hash_block(uint32_t state[8], const uint8_t *block) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] +
               (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t t1 = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                      ((e & v[5]) ^ (~e & v[6])) + round_constants[i] + w[i];
        uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                      ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

/* The hash of `first` followed by `next`, at most MOST_BYTES together. */
static void sha256(uint8_t out[PROOF_BYTES], const void *first, size_t a, const void *next,
                   size_t b) {
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t all[MOST_BYTES + 2 * BLOCK_BYTES] = {0};
    const size_t bits = 8 * (a + b),
                 end = (a + b + 9 + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    memcpy(all, first, a);
    memcpy(all + a, next, b);
    all[a + b] = 0x80;
    for (size_t i = 0; i < 4; i++)
        all[end - 1 - i] = (uint8_t)(bits >> 8 * i);
    for (size_t at = 0; at < end; at += BLOCK_BYTES)
        hash_block(state, all + at);
    for (size_t i = 0; i < PROOF_BYTES; i++)
        out[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

/* ---- HMAC ---- */

void hmac_sha256(uint8_t out[PROOF_BYTES], const char *secret, const void *data, size_t bytes) {
    uint8_t key[BLOCK_BYTES] = {0}, pad[BLOCK_BYTES];
    const size_t length = strlen(secret);
    if (length > BLOCK_BYTES)
        sha256(key, secret, length, "", 0);
    else
        memcpy(key, secret, length);
    for (int outer = 0; outer < 2; outer++) {
        for (int i = 0; i < BLOCK_BYTES; i++)
            pad[i] = key[i] ^ (outer ? 0x5c : 0x36);
        sha256(out, pad, BLOCK_BYTES, outer ? out : data, outer ? PROOF_BYTES : bytes);
    }
}

/* ---- proofs ---- */

int proof_check(const uint8_t proof[PROOF_BYTES], const char *secret,
                const struct statement *statement) {
    uint8_t right[PROOF_BYTES];
    unsigned differ = 0;
    hmac_sha256(right, secret, statement, sizeof *statement);
    for (int i = 0; i < PROOF_BYTES; i++)
        differ |= (unsigned)(proof[i] ^ right[i]);
    return differ ? fail(ERR_USAGE, "rpc: a peer does not know the job's secret") : OK;
}

void proof_name(char *out, size_t bytes, const char *secret) {
    uint8_t code[PROOF_BYTES];
    hmac_sha256(code, secret, "name", 4);
    for (size_t i = 0; i < 8 && 2 * i + 2 < bytes; i++)
        snprintf(out + 2 * i, bytes - 2 * i, "%02x", code[i]);
}

/* ---- a peer's description of itself ---- */

int opening_check(const struct opening *o) {
    if (o->magic != HELLO_MAGIC) return fail(ERR_USAGE, "rpc: a peer is not a worker of Duet");
    if (o->version != WIRE_VERSION)
        return fail(
            ERR_USAGE,
            "rpc: a peer speaks protocol version %u, this worker %d: build both from one version",
            o->version, WIRE_VERSION);
    return OK;
}

int name_is_good(const char *name, const char *others) {
    size_t length = name ? strlen(name) : 0;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr(others, name[i])) length = 0;
    return length && length < HELLO_NAME;
}

int worker_name_check(const char *name) {
    if (name_is_good(name, "_:-")) return OK;
    return fail(ERR_USAGE,
                "rpc: worker name '%.140s': give 1 to %d letters, digits, '_', ':' or '-'",
                name ? name : "", HELLO_NAME - 1);
}

int hello_check(const struct hello *hello, const struct hello *own) {
    if (!memchr(hello->name, 0, HELLO_NAME) || !memchr(hello->address, 0, HELLO_ADDRESS))
        return fail(ERR_USAGE, "rpc: init: the hello of rank %d: unterminated string", hello->rank);
    CHECK(worker_name_check(hello->name));
    if (hello->world != own->world)
        return fail(ERR_USAGE, "rpc: init: worker '%s' was started for %d workers, '%s' for %d",
                    hello->name, hello->world, own->name, own->world);
    if (hello->rank < 0 || hello->rank >= own->world)
        return fail(ERR_USAGE, "rpc: init: worker '%s' has rank %d in a world of %d: give 0 to %d",
                    hello->name, hello->rank, own->world, own->world - 1);
    return OK;
}
