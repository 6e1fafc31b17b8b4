/* SHA-256: the only user of libmd. */
#include "base/base.h"

#include <sha2.h>

void esp_i_sha256(const void *bytes, size_t length, char hex_out[65])
{
    static const char digits[] = "0123456789abcdef";
    SHA2_CTX context;
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256Init(&context);
    if (length > 0)
        SHA256Update(&context, bytes, length);
    SHA256Final(digest, &context);
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++) {
        hex_out[2 * i] = digits[digest[i] >> 4];
        hex_out[2 * i + 1] = digits[digest[i] & 15];
    }
    hex_out[64] = '\0';
}
