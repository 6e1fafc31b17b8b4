/* Stands in for libFuzzer: runs a fuzz target on the empty input and on every file of a corpus. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return 1;
    size_t capacity = 1 << 16, length = 0;
    uint8_t *data = malloc(capacity);
    while (data != NULL) {
        length += fread(data + length, 1, capacity - length, file);
        if (length < capacity)
            break;
        uint8_t *larger = realloc(data, capacity *= 2);
        if (larger == NULL)
            free(data);
        data = larger;
    }
    int failed = data == NULL || ferror(file) != 0;
    (void)fclose(file);
    if (!failed) {
        /* An exact allocation, so that reading past the end is seen. */
        uint8_t *exact = malloc(length > 0 ? length : 1);
        failed = exact == NULL;
        if (exact != NULL) {
            memcpy(exact, data, length);
            (void)LLVMFuzzerTestOneInput(exact, length);
        }
        free(exact);
    }
    free(data);
    return failed;
}

int main(int argc, char **argv)
{
    static const uint8_t nothing[1] = {0};
    (void)LLVMFuzzerTestOneInput(nothing, 0);
    int32_t count = 0;
    DIR *directory = argc > 1 ? opendir(argv[1]) : NULL;
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        int length = snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        if (length < 0 || (size_t)length >= sizeof path || replay_file(path) != 0) {
            fprintf(stderr, "cannot read %s/%s\n", argv[1], entry->d_name);
            return 1;
        }
        count++;
    }
    if (directory != NULL)
        (void)closedir(directory);
    printf("%d corpus files replayed\n", (int)count);
    return 0;
}
