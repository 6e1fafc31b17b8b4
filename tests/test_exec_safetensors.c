/* safetensors files: round trips, hostile headers, truncated files, writing all or nothing. */
#include "support.h"

#include "exec/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const float weights[6] = {1, -2, 3, -4, 5, -6};
static const int64_t step = 42;

static esp_status_t write_two(const char *path, const esp_allocator_t *alloc, esp_diag_t *diag)
{
    static const char *const meta[2][2] = {{"step", "42"}, {"odd \"key\"\n", "value"}};
    esp_i_st_tensor_t tensors[3] = {
        {.name = "layer.weight", .dtype = ESP_DTYPE_F32, .rank = 2, .dims = {2, 3}},
        {.name = "empty", .dtype = ESP_DTYPE_F64, .rank = 1, .dims = {0}},
        {.name = "step", .dtype = ESP_DTYPE_I64},
    };
    esp_i_file_out_t out;
    ESP_TRY(esp_i_st_begin(path, alloc, 2, meta, 3, tensors, &out, diag));
    ESP_TRY(esp_i_file_append(&out, weights, sizeof weights, diag));
    ESP_TRY(esp_i_file_append(&out, &step, sizeof step, diag));
    return esp_i_file_commit(&out, diag);
}

static void test_round_trip(void **state)
{
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    esp_diag_t diag = {0};
    esp_i_st_t st;
    (void)state;
    test_dir_make(&dir);
    test_dir_file(&dir, "a.safetensors", path);
    test_assert_ok(write_two(path, NULL, &diag), &diag);
    test_assert_ok(esp_i_st_open(path, NULL, &st, &diag), &diag);
    assert_int_equal(st.n_tensors, 3);
    assert_string_equal(st.tensor[0].name, "layer.weight");
    assert_int_equal(st.tensor[0].rank, 2);
    assert_int_equal(st.tensor[0].dims[1], 3);
    assert_memory_equal(st.data + st.tensor[0].offset, weights, sizeof weights);
    assert_string_equal(st.tensor[1].name, "empty");
    assert_memory_equal(st.data + st.tensor[2].offset, &step, sizeof step);
    assert_int_equal((st.data - st.map.data) % 8, 0);
    assert_string_equal(esp_i_st_meta(&st, "step"), "42");
    assert_string_equal(esp_i_st_meta(&st, "odd \"key\"\n"), "value");
    assert_null(esp_i_st_meta(&st, "none"));
    esp_i_st_close(&st);
    assert_int_equal(test_dir_count(&dir), 1);
    test_dir_remove(&dir);
}

static esp_status_t parse(const char *header, size_t bytes, esp_diag_t *diag)
{
    size_t length = strlen(header);
    uint8_t *file = calloc(1, 8 + length + bytes);
    esp_i_st_t st;
    assert_non_null(file);
    file[0] = (uint8_t)(length & 255);
    file[1] = (uint8_t)(length >> 8);
    memcpy(file + 8, header, length);
    *diag = (esp_diag_t){0};
    esp_status_t status = esp_i_st_parse(file, (int64_t)(8 + length + bytes), "f", NULL, &st, diag);
    if (status == ESP_OK)
        esp_i_st_close(&st);
    free(file);
    return status;
}

static void test_refuses(void **state)
{
#define T(name, dtype, shape, offsets)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
    static const struct {
        const char *header;
        size_t bytes;
        esp_status_t status;
        const char *part;
    } cases[] = {
        {"{" T("a", "F32", "[2]", "[0,8]") "}", 8, ESP_OK, NULL},
        {"{" T("b", "U8", "[3]", "[8,11]") "," T("a", "F32", "[2]", "[0,8]") "}   ", 11, ESP_OK,
         NULL},
        {"{}", 0, ESP_OK, NULL},
        {"{" T("a", "F32", "[2]", "[0,8]") "}", 7, ESP_ERR_INVALID, "ends after the file"},
        {"{" T("a", "F32", "[2]", "[0,8]") "}", 9, ESP_ERR_INVALID, "belong to no tensor"},
        {"{" T("a", "F32", "[2]", "[0,7]") "}", 8, ESP_ERR_INVALID, "shape needs 8"},
        {"{" T("a", "F32", "[2]", "[1,9]") "}", 9, ESP_ERR_INVALID, "follow"},
        {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[1,3]") "}", 3, ESP_ERR_INVALID,
         "follow"},
        {"{" T("a", "F32", "[2]", "[8,0]") "}", 8, ESP_ERR_INVALID, "data_offsets"},
        {"{" T("a", "F32", "[2]", "[-8,0]") "}", 8, ESP_ERR_INVALID, "data_offsets"},
        {"{" T("a", "F32", "[2]", "[0]") "}", 8, ESP_ERR_INVALID, "two numbers"},
        {"{" T("a", "F8_E5M2", "[2]", "[0,2]") "}", 2, ESP_ERR_UNSUPPORTED, "F8_E5M2"},
        {"{" T("a", "F32", "[-2]", "[0,8]") "}", 8, ESP_ERR_INVALID, "shape"},
        {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, ESP_ERR_LIMIT, "axes"},
        {"{" T("a", "F32", "[1000000000,1000000000,1000000000]", "[0,4]") "}", 4, ESP_ERR_LIMIT,
         "elements"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, ESP_ERR_INVALID, "data_offsets"},
        {"{\"a\":3}", 0, ESP_ERR_INVALID, "a"},
        {"{\"__metadata__\":{\"k\":3}}", 0, ESP_ERR_INVALID, "k"},
        {"{" T("a", "U8", "[]", "[0,1]") "," T("a", "U8", "[]", "[1,2]") "}", 2, ESP_ERR_SYNTAX,
         ""},
        {"[]", 0, ESP_ERR_INVALID, ""},
        {"{", 0, ESP_ERR_SYNTAX, ""},
    };
    esp_diag_t diag;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (cases[i].status == ESP_OK)
            test_assert_ok(parse(cases[i].header, cases[i].bytes, &diag), &diag);
        else
            test_assert_fails(parse(cases[i].header, cases[i].bytes, &diag), &diag, cases[i].status,
                              cases[i].part);
}

static void test_truncated(void **state)
{
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    esp_diag_t diag = {0};
    size_t length;
    (void)state;
    test_dir_make(&dir);
    test_dir_file(&dir, "a", path);
    test_assert_ok(write_two(path, NULL, &diag), &diag);
    char *file = test_read_file(path, &length);
    for (size_t n = 0; n <= length; n++) {
        esp_i_st_t st;
        char *exact = malloc(n > 0 ? n : 1);
        assert_non_null(exact);
        memcpy(exact, file, n);
        esp_status_t status = esp_i_st_parse(exact, (int64_t)n, "f", NULL, &st, &diag);
        assert_int_equal(status == ESP_OK, n == length);
        if (status == ESP_OK)
            esp_i_st_close(&st);
        free(exact);
    }
    /* A header length beyond any file. */
    memset(file, 0xff, 8);
    esp_i_st_t st;
    test_assert_fails(esp_i_st_parse(file, (int64_t)length, "f", NULL, &st, &diag), &diag,
                      ESP_ERR_SYNTAX, "cut short");
    free(file);
    test_dir_remove(&dir);
}

/* A file that is given up leaves the old one and nothing else. */
static void test_abandoned(void **state)
{
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    esp_diag_t diag = {0};
    esp_i_st_tensor_t tensor = {.name = "a", .dtype = ESP_DTYPE_U8};
    esp_i_file_out_t out;
    esp_i_st_t st;
    (void)state;
    test_dir_make(&dir);
    test_dir_file(&dir, "a", path);
    test_assert_ok(write_two(path, NULL, &diag), &diag);
    test_assert_ok(esp_i_st_begin(path, NULL, 0, NULL, 1, &tensor, &out, &diag), &diag);
    esp_i_file_abandon(&out);
    esp_i_file_abandon(&out);
    assert_int_equal(test_dir_count(&dir), 1);
    test_assert_ok(esp_i_st_open(path, NULL, &st, &diag), &diag);
    assert_int_equal(st.n_tensors, 3);
    esp_i_st_close(&st);
    test_assert_fails(write_two("/nowhere/at/all", NULL, &diag), &diag, ESP_ERR_IO, "cannot write");
    test_dir_remove(&dir);
}

static esp_status_t attempt(const esp_allocator_t *alloc, void *context)
{
    esp_i_st_t st;
    esp_diag_t diag = {0};
    ESP_TRY(write_two(context, alloc, &diag));
    ESP_TRY(esp_i_st_open(context, alloc, &st, &diag));
    esp_i_st_close(&st);
    return ESP_OK;
}

static void test_memory(void **state)
{
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    (void)state;
    test_dir_make(&dir);
    test_dir_file(&dir, "a", path);
    test_sweep_allocations(attempt, path, 1);
    test_dir_remove(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_truncated),  cmocka_unit_test(test_abandoned),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
