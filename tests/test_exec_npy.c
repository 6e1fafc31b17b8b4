/* .npy files: round trips, headers of other writers, hostile headers, conversion of numbers. */
#include "support.h"

#include "exec/files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_round_trip(void **state)
{
    static const struct {
        esp_dtype_t dtype;
        int32_t rank;
        int64_t dims[3];
    } cases[] = {
        {ESP_DTYPE_F32, 2, {3, 5}},    {ESP_DTYPE_F64, 1, {7}},   {ESP_DTYPE_I64, 0, {0}},
        {ESP_DTYPE_I32, 3, {2, 1, 4}}, {ESP_DTYPE_U8, 2, {0, 9}}, {ESP_DTYPE_BOOL, 1, {1}},
        {ESP_DTYPE_I16, 1, {3}},       {ESP_DTYPE_I8, 1, {5}},
    };
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    uint8_t data[128];
    (void)state;
    test_dir_make(&dir);
    test_dir_file(&dir, "a.npy", path);
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 37 & 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        esp_diag_t diag = {0};
        esp_i_npy_t npy;
        test_assert_ok(
            esp_i_npy_write(path, cases[i].dtype, cases[i].rank, cases[i].dims, data, &diag),
            &diag);
        test_assert_ok(esp_i_npy_open(path, &npy, &diag), &diag);
        assert_int_equal(npy.dtype, cases[i].dtype);
        assert_int_equal(npy.rank, cases[i].rank);
        assert_int_equal((npy.data - npy.map.data) % 64, 0);
        for (int32_t d = 0; d < npy.rank; d++)
            assert_int_equal(npy.dims[d], cases[i].dims[d]);
        assert_memory_equal(npy.data, data, (size_t)(npy.elements * esp_dtype_bytes(npy.dtype)));
        esp_i_npy_close(&npy);
    }
    assert_int_equal(test_dir_count(&dir), 1);
    test_dir_remove(&dir);
}

/* A file of `version` with this header text and `bytes` of zeros; an exact allocation. */
static esp_status_t parse(int version, const char *header, size_t bytes, esp_i_npy_t *npy,
                          esp_diag_t *diag)
{
    size_t length = strlen(header), first = version == 1 ? 10 : 12;
    uint8_t *file = calloc(1, first + length + bytes);
    assert_non_null(file);
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (uint8_t)version;
    file[8] = (uint8_t)(length & 255);
    file[9] = (uint8_t)(length >> 8);
    memcpy(file + first, header, length);
    *diag = (esp_diag_t){0};
    esp_status_t status = esp_i_npy_parse(file, (int64_t)(first + length + bytes), npy, diag);
    free(file);
    return status;
}

static void test_versions(void **state)
{
    (void)state;
    for (int version = 1; version <= 3; version++) {
        esp_diag_t diag;
        esp_i_npy_t npy;
        test_assert_ok(parse(version,
                             "{\"shape\":(2,3), 'fortran_order':False,\n'descr' : '<i2' }  \n", 12,
                             &npy, &diag),
                       &diag);
        assert_int_equal(npy.rank, 2);
        assert_int_equal(npy.dtype, ESP_DTYPE_I16);
        assert_int_equal(npy.elements, 6);
    }
}

static void test_refuses(void **state)
{
#define D(descr, order, shape)                                                                     \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"
    static const struct {
        const char *header;
        size_t bytes;
        esp_status_t status;
        const char *part;
    } cases[] = {
        {D("'<f4'", "True", "(2, 2)"), 16, ESP_ERR_UNSUPPORTED, "Fortran order"},
        {D("'>f4'", "False", "(2,)"), 8, ESP_ERR_UNSUPPORTED, "'>f4'"},
        {D("'<c8'", "False", "(2,)"), 16, ESP_ERR_UNSUPPORTED, "'<c8'"},
        {D("'|O'", "False", "(2,)"), 16, ESP_ERR_UNSUPPORTED, "'|O'"},
        {D("[('a', '<f4')]", "False", "(2,)"), 8, ESP_ERR_UNSUPPORTED, "records"},
        {D("'<f4'", "False", "(2,)"), 7, ESP_ERR_SYNTAX, "needs 8 bytes"},
        {D("'<f4'", "False", "(2,)"), 9, ESP_ERR_SYNTAX, "needs 8 bytes"},
        {D("'<f4'", "Maybe", "(2,)"), 8, ESP_ERR_SYNTAX, "fortran_order"},
        {D("'<f4'", "False", "(2)"), 8, ESP_ERR_SYNTAX, "tuple"},
        {D("'<f4'", "False", "(2,-1)"), 8, ESP_ERR_SYNTAX, "number"},
        {D("'<f4'", "False", "(1,1,1,1,1,1,1,1,1)"), 4, ESP_ERR_LIMIT, "axes"},
        {D("'<f4'", "False", "(99999999999999999999,)"), 4, ESP_ERR_LIMIT, "too large"},
        {D("'<f4'", "False", "(9999999999,9999999999)"), 4, ESP_ERR_LIMIT, "elements"},
        {"{'descr': '<f4', 'descr': '<f4', }", 0, ESP_ERR_SYNTAX, "unexpected key"},
        {"{'descr': '<f4', 'shape': (), 'other': 1}", 0, ESP_ERR_SYNTAX, "unexpected key"},
        {"{'descr': '<f4', 'shape': ()}", 4, ESP_ERR_SYNTAX, "incomplete"},
        {D("'<f4'", "False", "()") "x", 4, ESP_ERR_SYNTAX, "incomplete"},
        {"{", 0, ESP_ERR_SYNTAX, "string"},
        {"", 0, ESP_ERR_SYNTAX, "dictionary"},
        {"{'descr': '<f4", 0, ESP_ERR_UNSUPPORTED, "not understood"},
    };
    esp_diag_t diag;
    esp_i_npy_t npy;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        test_assert_fails(parse(1, cases[i].header, cases[i].bytes, &npy, &diag), &diag,
                          cases[i].status, cases[i].part);
    test_assert_fails(parse(4, "{}", 0, &npy, &diag), &diag, ESP_ERR_UNSUPPORTED, "version 4");
}

/* Every prefix of a good file is an error, and none reads past its end. */
static void test_truncated(void **state)
{
    static const char text[] = D("'<f4'", "False", "(2,)");
    uint8_t file[256] = "\x93NUMPY\x01";
    size_t length = 10 + sizeof text - 1 + 8;
    (void)state;
    file[8] = sizeof text - 1;
    memcpy(file + 10, text, sizeof text - 1);
    for (size_t n = 0; n <= length; n++) {
        esp_diag_t diag = {0};
        esp_i_npy_t npy;
        uint8_t *exact = malloc(n > 0 ? n : 1);
        assert_non_null(exact);
        memcpy(exact, file, n);
        esp_status_t status = esp_i_npy_parse(exact, (int64_t)n, &npy, &diag);
        assert_int_equal(status == ESP_OK, n == length);
        free(exact);
    }
}

static void test_files(void **state)
{
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    esp_diag_t diag = {0};
    esp_i_npy_t npy;
    (void)state;
    test_dir_make(&dir);
    test_assert_fails(esp_i_npy_open(dir.path, &npy, &diag), &diag, ESP_ERR_IO, "directory");
    test_assert_fails(esp_i_npy_open(test_dir_file(&dir, "none", path), &npy, &diag), &diag,
                      ESP_ERR_IO, "none: cannot open");
    test_write_file(path, "", 0);
    test_assert_fails(esp_i_npy_open(path, &npy, &diag), &diag, ESP_ERR_SYNTAX, "not a .npy file");
    test_assert_fails(esp_i_npy_open("/dev/zero", &npy, &diag), &diag, ESP_ERR_IO, "device");
    test_dir_remove(&dir);
}

static void test_convert(void **state)
{
    static const int64_t integers[] = {-129, -128, -1, 0, 1, 127, 128, 255, 256};
    static const uint16_t halves[] = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x7c00};
    static const double values[] = {1, -2, 65504, 0x1p-24, (double)INFINITY};
    double wide[9];
    int64_t bad;
    int8_t small[9];
    (void)state;
    assert_true(esp_i_convert(ESP_DTYPE_F64, wide, ESP_DTYPE_I64, integers, 9, &bad));
    for (int i = 0; i < 9; i++)
        assert_true(wide[i] == (double)integers[i]);
    assert_false(esp_i_convert(ESP_DTYPE_I8, small, ESP_DTYPE_I64, integers, 9, &bad));
    assert_int_equal(bad, 0);
    assert_false(esp_i_convert(ESP_DTYPE_I8, small, ESP_DTYPE_I64, integers + 1, 8, &bad));
    assert_int_equal(bad, 5);
    assert_int_equal(small[1], -1);
    assert_true(esp_i_convert(ESP_DTYPE_U8, small, ESP_DTYPE_I64, integers + 3, 5, &bad));
    assert_false(esp_i_convert(ESP_DTYPE_BOOL, small, ESP_DTYPE_I64, integers + 3, 3, &bad));
    assert_int_equal(bad, 2);
    assert_true(esp_i_convert(ESP_DTYPE_F64, wide, ESP_DTYPE_F16, halves, 5, &bad));
    for (int i = 0; i < 5; i++)
        assert_true(wide[i] == values[i]);
    assert_false(esp_i_convert(ESP_DTYPE_I64, wide, ESP_DTYPE_F32, halves, 1, &bad));
    assert_int_equal(bad, -1);
    assert_false(esp_i_convert(ESP_DTYPE_F16, wide, ESP_DTYPE_F32, values, 1, &bad));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_versions),
        cmocka_unit_test(test_refuses),    cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_files),      cmocka_unit_test(test_convert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
