/* Status texts, diagnostics, memory, text, names, hashes. */
#include "support.h"

#include <stdio.h>
#include <string.h>

/* ---- status and diagnostics --------------------------------------------------------------- */

static void test_status_texts(void **state)
{
    (void)state;
#define CHECK_TEXT(name, value, text)                                                              \
    assert_int_equal(name, value);                                                                 \
    assert_string_equal(esp_status_text(name), text);
    ESP_STATUS_MAP(CHECK_TEXT)
#undef CHECK_TEXT
    assert_string_equal(esp_status_text((esp_status_t)-77), "unknown status");
    char version[32];
    (void)snprintf(version, sizeof version, "%d.%d.%d", ESP_VERSION_MAJOR, ESP_VERSION_MINOR,
                   ESP_VERSION_PATCH);
    assert_string_equal(esp_version(), version);
}

static const char *formatted(const esp_diag_t *diag)
{
    static char text[1024];
    size_t length = esp_diag_format(diag, text, sizeof text);
    assert_int_equal(length, strlen(text));
    return text;
}

static void test_diag_parts(void **state)
{
    (void)state;
    esp_diag_t diag = {0};
    assert_int_equal(esp_i_fail(&diag, ESP_ERR_SYNTAX, "bad %s", "thing"), ESP_ERR_SYNTAX);
    assert_int_equal(diag.status, ESP_ERR_SYNTAX);
    assert_string_equal(formatted(&diag), "bad thing");
    esp_i_diag_line(&diag, 3, 0);
    assert_string_equal(formatted(&diag), "line 3: bad thing");
    esp_i_diag_line(&diag, 3, 4);
    assert_string_equal(formatted(&diag), "line 3:4: bad thing");
    esp_i_diag_place(&diag, "$.x[%d]", 7);
    assert_string_equal(formatted(&diag), "line 3:4: $.x[7]: bad thing");
    esp_i_diag_file(&diag, "a.yaml");
    assert_string_equal(formatted(&diag), "a.yaml:3:4: $.x[7]: bad thing");

    diag = (esp_diag_t){.status = ESP_ERR_INVALID};
    esp_i_diag_byte(&diag, 0);
    assert_string_equal(formatted(&diag), "byte 0: the input is well formed but makes no sense");
    esp_i_diag_file(&diag, "m.onnx");
    (void)esp_i_nomem(&diag);
    assert_string_equal(formatted(&diag), "m.onnx: byte 0: out of memory");
}

static void test_diag_accepts_null(void **state)
{
    (void)state;
    assert_int_equal(esp_i_fail(NULL, ESP_ERR_IO, "x"), ESP_ERR_IO);
    assert_int_equal(esp_i_nomem(NULL), ESP_ERR_NOMEM);
    esp_i_diag_file(NULL, "f");
    esp_i_diag_place(NULL, "p");
    esp_i_diag_line(NULL, 1, 1);
    esp_i_diag_byte(NULL, 1);
}

static void test_diag_cuts(void **state)
{
    (void)state;
    char longer[2000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    memcpy(longer, "begin", 5);
    memcpy(longer + sizeof longer - 4, "end", 3);
    esp_diag_t diag = {0};
    esp_i_diag_file(&diag, longer);
    assert_int_equal(strlen(diag.file), sizeof diag.file - 1);
    assert_memory_equal(diag.file, "begin", 5);
    assert_string_equal(diag.file + sizeof diag.file - 4, "end");
    assert_non_null(strstr(diag.file, "x...x"));
    esp_i_diag_place(&diag, "%.200s", longer);
    assert_int_equal(strlen(diag.place), sizeof diag.place - 1);
    (void)esp_i_fail(&diag, ESP_ERR_IO, "%s", longer);
    assert_int_equal(strlen(diag.text), sizeof diag.text - 1);

    char small[8];
    size_t length = esp_diag_format(&diag, small, sizeof small);
    assert_int_equal(length, sizeof diag.file + sizeof diag.place + sizeof diag.text - 3 + 4);
    assert_string_equal(small, "beginxx");
    assert_int_equal(esp_diag_format(&diag, NULL, 0), length);
}

static void test_diag_is_one_line(void **state)
{
    (void)state;
    esp_diag_t diag = {0};
    esp_i_diag_file(&diag, "a\nb");
    esp_i_diag_place(&diag, "node\x1b[2J");
    (void)esp_i_fail(&diag, ESP_ERR_IO, "two\nlines");
    assert_string_equal(formatted(&diag), "a b: node [2J: two lines");
}

/* ---- memory ------------------------------------------------------------------------------- */

static void test_alloc(void **state)
{
    (void)state;
    test_memory_t memory;
    test_memory_init(&memory);
    esp_allocator_t copy = esp_i_allocator(&memory.alloc);
    assert_ptr_equal(copy.context, &memory);
    assert_ptr_equal(esp_i_allocator(NULL).alloc, esp_i_malloc.alloc);
    void *nothing = esp_i_alloc(&memory.alloc, 0);
    assert_non_null(nothing);
    esp_i_free(&memory.alloc, nothing);
    esp_i_free(&memory.alloc, NULL);
    esp_i_free(NULL, esp_i_alloc(NULL, 10));
    int64_t *zeros = esp_i_alloc_array(&memory.alloc, 5, sizeof *zeros);
    for (int i = 0; i < 5; i++)
        assert_int_equal(zeros[i], 0);
    esp_i_free(&memory.alloc, zeros);
    assert_null(esp_i_alloc_array(&memory.alloc, -1, 1));
    assert_null(esp_i_alloc_array(&memory.alloc, INT64_MAX, 8));
    assert_null(esp_i_alloc_array(&memory.alloc, INT64_MAX / 4, 8));
    test_memory_check(&memory);
}

static esp_status_t push_numbers(const esp_allocator_t *alloc, void *context)
{
    int32_t n = *(const int32_t *)context;
    ESP_VEC(int32_t) v = {0};
    esp_status_t status = ESP_ERR_NOMEM;
    for (int32_t i = 0; i < n; i++)
        if (!esp_vec_push(alloc, &v, i))
            goto done;
    assert_int_equal(v.count, n);
    for (int32_t i = 0; i < n; i++)
        assert_int_equal(v.data[i], i);
    if (!esp_vec_extend(alloc, &v, 1000))
        goto done;
    assert_int_equal(v.count, n + 1000);
    assert_true(v.capacity >= v.count);
    status = ESP_OK;
done:
    esp_vec_free(alloc, &v);
    assert_null(v.data);
    return status;
}

static void test_vec(void **state)
{
    (void)state;
    int32_t n = 100;
    test_sweep_allocations(push_numbers, &n, 1);
    int32_t *data = NULL, capacity = 0;
    assert_false(esp_i_grow(NULL, &data, &capacity, (int64_t)INT32_MAX + 1, sizeof *data));
    assert_true(esp_i_grow(NULL, &data, &capacity, 0, sizeof *data));
    assert_null(data);
}

static esp_status_t fill_arena(const esp_allocator_t *alloc, void *context)
{
    (void)context;
    esp_i_arena_t arena;
    esp_i_arena_init(&arena, alloc);
    esp_status_t status = ESP_ERR_NOMEM;
    for (int i = 0; i < 300; i++) {
        uint64_t *block = esp_i_arena_alloc(&arena, i, sizeof *block);
        if (block == NULL)
            goto done;
        assert_int_equal((uintptr_t)block % _Alignof(max_align_t), 0);
        for (int j = 0; j < i; j++) {
            assert_int_equal(block[j], 0);
            block[j] = UINT64_MAX; /* shows overlaps */
        }
    }
    char *large = esp_i_arena_alloc(&arena, 5000000, 1);
    char *text = esp_i_arena_printf(&arena, "%s-%d", "x", 42);
    char *copy = esp_i_arena_strdup(&arena, "copied");
    char *part = esp_i_arena_strndup(&arena, "copied", 3);
    if (large == NULL || text == NULL || copy == NULL || part == NULL)
        goto done;
    assert_string_equal(text, "x-42");
    assert_string_equal(copy, "copied");
    assert_string_equal(part, "cop");
    assert_true(arena.used >= 5000000 && arena.total >= arena.used);
    status = ESP_OK;
done:
    esp_i_arena_fini(&arena);
    esp_i_arena_fini(&arena); /* twice does no harm */
    return status;
}

static void test_arena(void **state)
{
    (void)state;
    test_sweep_allocations(fill_arena, NULL, 1);
    esp_i_arena_t arena = {.alloc = esp_i_malloc};
    assert_null(esp_i_arena_alloc(&arena, INT64_MAX, 2));
    assert_null(esp_i_arena_alloc(&arena, -1, 2));
    char *empty = esp_i_arena_strndup(&arena, "", 0);
    assert_string_equal(empty, "");
    esp_i_arena_fini(&arena);
}

/* ---- text --------------------------------------------------------------------------------- */

static esp_status_t build_text(const esp_allocator_t *alloc, void *context)
{
    (void)context;
    esp_i_text_t text;
    esp_i_text_init(&text, alloc);
    for (int i = 0; i < 200; i++) {
        esp_i_text_add(&text, "ab");
        esp_i_text_addf(&text, "%d;", i % 10);
    }
    esp_i_text_add_bytes(&text, "\0z", 2);
    esp_status_t status = text.failed ? ESP_ERR_NOMEM : ESP_OK;
    if (status == ESP_OK) {
        assert_int_equal(text.length, 200 * 4 + 2);
        assert_memory_equal(text.data + 796, "ab9;\0z\0", 7);
    }
    esp_i_text_fini(&text);
    return status;
}

static void test_text(void **state)
{
    (void)state;
    test_sweep_allocations(build_text, NULL, 1);
    esp_i_text_t text;
    esp_i_text_init(&text, NULL);
    assert_null(text.data);
    esp_i_text_add(&text, "");
    assert_string_equal(text.data, "");
    esp_i_text_fini(&text);
}

static void test_format_for_people(void **state)
{
    (void)state;
    static const struct {
        int64_t value;
        const char *text;
    } bytes[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.00 KiB"},
                 {1536, "1.50 KiB"},
                 {10 * 1024, "10.0 KiB"},
                 {1000 * 1024, "1000 KiB"},
                 {1024 * 1024 - 1, "1.00 MiB"},
                 {INT64_C(16) << 30, "16.0 GiB"},
                 {-2048, "-2.00 KiB"},
                 {INT64_MAX, "8.00 EiB"},
                 {INT64_MIN, "-8.00 EiB"}};
    static const struct {
        int64_t value;
        const char *text;
    } times[] = {{0, "0 ns"},         {999, "999 ns"},          {1000, "1.00 us"},
                 {9994, "9.99 us"},   {9996, "10.0 us"},        {12345678, "12.3 ms"},
                 {999499, "999 us"},  {999500, "1.00 ms"},      {60000000000, "60.0 s"},
                 {-1500, "-1.50 us"}, {3600000000000, "3600 s"}};
    char out[32];
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        esp_i_format_bytes(bytes[i].value, out);
        assert_string_equal(out, bytes[i].text);
    }
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        esp_i_format_ns(times[i].value, out);
        assert_string_equal(out, times[i].text);
    }
}

/* ---- names and hashes --------------------------------------------------------------------- */

static esp_status_t intern_names(const esp_allocator_t *alloc, void *context)
{
    (void)context;
    esp_i_arena_t arena;
    esp_i_names_t names;
    esp_i_arena_init(&arena, alloc);
    esp_i_names_init(&names, &arena);
    esp_status_t status = ESP_ERR_NOMEM;
    char name[32];
    for (int round = 0; round < 2; round++)
        for (int32_t i = 0; i < 500; i++) {
            int length = snprintf(name, sizeof name, "name%d", (int)i);
            int32_t id = esp_i_names_add(&names, name, (size_t)length);
            if (id < 0)
                goto done;
            assert_int_equal(id, i);
        }
    assert_int_equal(names.count, 500);
    assert_string_equal(names.names[17], "name17");
    assert_int_equal(esp_i_names_find(&names, "name499x", 7), 499);
    assert_int_equal(esp_i_names_find(&names, "name500", 7), -1);
    status = ESP_OK;
done:
    esp_i_names_fini(&names);
    esp_i_arena_fini(&arena);
    return status;
}

static void test_names(void **state)
{
    (void)state;
    test_sweep_allocations(intern_names, NULL, 1);
    esp_i_arena_t arena;
    esp_i_names_t names;
    esp_i_arena_init(&arena, NULL);
    esp_i_names_init(&names, &arena);
    assert_int_equal(esp_i_names_find(&names, "x", 1), -1);
    assert_int_equal(esp_i_names_add(&names, "", 0), 0);
    assert_int_equal(esp_i_names_add(&names, "a\0b", 3), 1); /* ends at the NUL */
    assert_int_equal(esp_i_names_add(&names, "a", 1), 1);
    assert_int_equal(esp_i_names_find(&names, "a\0c", 3), 1);
    assert_int_equal(esp_i_names_find(&names, "", 0), 0);
    esp_i_names_fini(&names);
    esp_i_arena_fini(&arena);
}

static void test_hashes(void **state)
{
    (void)state;
    assert_true(esp_i_hash_bytes(0, "", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(esp_i_hash_bytes(0, "foobar", 6) == UINT64_C(0x85944171f73967e8));
    assert_true(esp_i_hash_bytes(1, "foobar", 6) != UINT64_C(0x85944171f73967e8));
    char hex[65];
    esp_i_sha256("", 0, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    esp_i_sha256("abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_texts),
        cmocka_unit_test(test_diag_parts),
        cmocka_unit_test(test_diag_accepts_null),
        cmocka_unit_test(test_diag_cuts),
        cmocka_unit_test(test_diag_is_one_line),
        cmocka_unit_test(test_alloc),
        cmocka_unit_test(test_vec),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_format_for_people),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_hashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
