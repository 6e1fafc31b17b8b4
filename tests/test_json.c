/* JSON, both ways. */
#include "support.h"
#include "base/json.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ------------------------------------------------------------------------------ */

static void write_example(esp_i_text_t *text)
{
    esp_i_json_out_t out;
    esp_i_json_out_init(&out, text);
    esp_i_json_open_object(&out, NULL);
    esp_i_json_put_string(&out, "name", "a \"b\"\\\n\x01\x7f\xc3\xa9\xff");
    esp_i_json_put_string(&out, "none", NULL);
    esp_i_json_open_array(&out, "empty");
    esp_i_json_close(&out);
    esp_i_json_open_object(&out, "nested");
    esp_i_json_next_flat(&out);
    esp_i_json_open_array(&out, "flat");
    esp_i_json_put_int(&out, NULL, INT64_MIN);
    esp_i_json_open_object(&out, NULL);
    esp_i_json_put_bool(&out, "t", true);
    esp_i_json_put_null(&out, "n");
    esp_i_json_close(&out);
    esp_i_json_open_array(&out, NULL);
    esp_i_json_close(&out);
    esp_i_json_close(&out);
    esp_i_json_put_int(&out, "max", INT64_MAX);
    esp_i_json_close(&out);
    esp_i_json_put_bool(&out, "f", false);
    esp_i_json_close(&out);
}

static void test_write_document(void **state)
{
    (void)state;
    esp_i_text_t text;
    esp_i_text_init(&text, NULL);
    write_example(&text);
    assert_string_equal(text.data,
                        "{\n"
                        "  \"name\": \"a \\\"b\\\"\\\\\\n\\u0001\x7f\xc3\xa9\\ufffd\",\n"
                        "  \"none\": null,\n"
                        "  \"empty\": [],\n"
                        "  \"nested\": {\n"
                        "    \"flat\": [-9223372036854775808, {\"t\": true, \"n\": null}, []],\n"
                        "    \"max\": 9223372036854775807\n"
                        "  },\n"
                        "  \"f\": false\n"
                        "}\n");
    esp_i_text_fini(&text);
}

static void check_real(double value, const char *expected)
{
    esp_i_text_t text;
    esp_i_json_out_t out;
    esp_i_text_init(&text, NULL);
    esp_i_json_out_init(&out, &text);
    esp_i_json_put_real(&out, NULL, value);
    assert_string_equal(text.data, expected);
    esp_i_text_fini(&text);
}

static void check_reals(void)
{
    check_real(0, "0.0");
    check_real(-0.0, "-0.0");
    check_real(1, "1.0");
    check_real(-1.5, "-1.5");
    check_real(0.1, "0.1");
    check_real(0.1 + 0.2, "0.30000000000000004");
    check_real(1.0 / 3, "0.3333333333333333");
    check_real(1e15, "1e+15");
    check_real(123456789012345680.0, "1.2345678901234568e+17");
    check_real(DBL_MAX, "1.7976931348623157e+308");
    check_real(DBL_MIN, "2.2250738585072014e-308");
    check_real(5e-324, "5e-324");
    check_real(NAN, "null");
    check_real(-INFINITY, "null");
}

static void test_write_reals(void **state)
{
    (void)state;
    check_reals();
    /* A host may have set a locale with a decimal comma. */
    const char *const commas[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    for (size_t i = 0; i < sizeof commas / sizeof commas[0]; i++)
        if (setlocale(LC_NUMERIC, commas[i]) != NULL) {
            check_reals();
            break;
        }
    (void)setlocale(LC_NUMERIC, "C");
}

static void test_reals_round_trip(void **state)
{
    (void)state;
    esp_i_rng_t rng;
    esp_i_rng_seed(&rng, 3);
    esp_i_text_t text;
    esp_i_text_init(&text, NULL);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = esp_i_rng_u64(&rng);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value))
            continue;
        esp_i_json_out_t out;
        text.length = 0;
        esp_i_json_out_init(&out, &text);
        esp_i_json_put_real(&out, NULL, value);
        assert_true(strtod(text.data, NULL) == value);
    }
    esp_i_text_fini(&text);
}

/* ---- reading ------------------------------------------------------------------------------ */

static esp_i_json_doc_t *parse(const char *text)
{
    esp_i_json_doc_t *doc = NULL;
    esp_diag_t diag = {0};
    test_assert_ok(esp_i_json_parse(NULL, text, (int64_t)strlen(text), "t.json", &doc, &diag),
                   &diag);
    assert_int_equal(diag.file[0], '\0'); /* success leaves it alone */
    return doc;
}

static void test_navigate(void **state)
{
    (void)state;
    esp_i_json_doc_t *doc = parse("{\"z\": [1, 2.5, \"s\", true, null, {}], \"a\": -7}");
    esp_i_json_t root = esp_i_json_root(doc), z, a, missing;
    assert_int_equal(esp_i_json_kind(root), ESP_I_JSON_OBJECT);
    assert_int_equal(esp_i_json_count(root), 2);
    assert_string_equal(esp_i_json_key(esp_i_json_item(root, 0)), "z");
    assert_true(esp_i_json_find(root, "z", &z) && esp_i_json_find(root, "a", &a));
    assert_false(esp_i_json_find(root, "b", &missing));
    assert_false(esp_i_json_find(z, "b", &missing));
    static const esp_i_json_kind_t kinds[] = {ESP_I_JSON_INT,  ESP_I_JSON_REAL, ESP_I_JSON_STRING,
                                              ESP_I_JSON_BOOL, ESP_I_JSON_NULL, ESP_I_JSON_OBJECT};
    assert_int_equal(esp_i_json_count(z), 6);
    for (int32_t i = 0; i < 6; i++) {
        assert_int_equal(esp_i_json_kind(esp_i_json_item(z, i)), kinds[i]);
        assert_null(esp_i_json_key(esp_i_json_item(z, i)));
    }
    assert_int_equal(esp_i_json_count(a), 0);
    esp_i_json_destroy(doc);
    esp_i_json_destroy(NULL);
}

static void test_values(void **state)
{
    (void)state;
    esp_i_json_doc_t *doc =
        parse("{\"i\": 9223372036854775807, \"r\": 0.5, \"s\": \"t\", \"b\": true, \"a\": []}");
    esp_i_json_t root = esp_i_json_root(doc), array;
    int64_t integer;
    double real;
    const char *string;
    bool boolean;
    esp_diag_t diag = {0};
    test_assert_ok(esp_i_json_get_int(root, "i", 0, INT64_MAX, &integer, &diag), &diag);
    assert_true(integer == INT64_MAX);
    test_assert_ok(esp_i_json_get_real(root, "r", 0.5, 0.5, &real, &diag), &diag);
    assert_true(real == 0.5);
    test_assert_ok(esp_i_json_get_real(root, "i", 0, 1e19, &real, &diag), &diag);
    assert_true(real == 0x1p63);
    test_assert_ok(esp_i_json_get_string(root, "s", &string, &diag), &diag);
    assert_string_equal(string, "t");
    test_assert_ok(esp_i_json_get_bool(root, "b", &boolean, &diag), &diag);
    assert_true(boolean);
    test_assert_ok(esp_i_json_get(root, "a", ESP_I_JSON_ARRAY, &array, &diag), &diag);
    static const char *const known[] = {"a", "b", "i", "r", "s", "t"};
    test_assert_ok(esp_i_json_check_keys(root, known, 6, &diag), &diag);
    test_assert_fails(esp_i_json_check_keys(root, known, 4, &diag), &diag, ESP_ERR_INVALID,
                      "t.json: $.s: unknown key; known here: a, b, i, r");
    esp_i_json_destroy(doc);
}

static void test_value_errors(void **state)
{
    (void)state;
    esp_i_json_doc_t *doc = parse("{\"groups\": [0, {\"devices\": -1, \"odd key\": [[null]]}]}");
    esp_i_json_t groups, group, odd;
    int64_t integer = 5;
    double real = 5;
    const char *string = NULL;
    bool boolean;
    esp_diag_t diag = {0};
    esp_i_json_t root = esp_i_json_root(doc);
    test_assert_ok(esp_i_json_get(root, "groups", ESP_I_JSON_ARRAY, &groups, &diag), &diag);
    group = esp_i_json_item(groups, 1);
    test_assert_fails(esp_i_json_get_int(group, "devices", 0, 64, &integer, &diag), &diag,
                      ESP_ERR_INVALID, "t.json: $.groups[1].devices: -1 is not from 0 to 64");
    test_assert_fails(esp_i_json_get_real(group, "devices", 0, 0.5, &real, &diag), &diag,
                      ESP_ERR_INVALID, "$.groups[1].devices: -1 is not from 0 to 0.5");
    test_assert_fails(esp_i_json_get_string(group, "devices", &string, &diag), &diag,
                      ESP_ERR_INVALID, "expected a string, found an integer");
    test_assert_fails(esp_i_json_get_bool(group, "kind", &boolean, &diag), &diag, ESP_ERR_INVALID,
                      "$.groups[1].kind: this key is missing");
    test_assert_fails(esp_i_json_get_int(groups, "x", 0, 1, &integer, &diag), &diag,
                      ESP_ERR_INVALID, "$.groups: expected an object, found an array");
    test_assert_fails(esp_i_json_check_keys(groups, NULL, 0, &diag), &diag, ESP_ERR_INVALID,
                      "$.groups: expected an object, found an array");
    test_assert_ok(esp_i_json_get(group, "odd key", ESP_I_JSON_ARRAY, &odd, &diag), &diag);
    odd = esp_i_json_item(esp_i_json_item(odd, 0), 0);
    test_assert_fails(esp_i_json_fail(odd, &diag, ESP_ERR_UNSUPPORTED, "no %d", 7), &diag,
                      ESP_ERR_UNSUPPORTED, "$.groups[1][\"odd key\"][0][0]: no 7");
    assert_int_equal(esp_i_json_fail(odd, NULL, ESP_ERR_INVALID, "x"), ESP_ERR_INVALID);
    assert_true(integer == 5 && real == 5 && string == NULL);
    esp_i_json_destroy(doc);
}

static void test_syntax_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
        esp_status_t status;
    } cases[] = {
        {"", "t.json:1:1: ", ESP_ERR_SYNTAX},
        {"[1,\n 2,]", "t.json:2:4: ", ESP_ERR_SYNTAX},
        {"[1] x", "t.json:1:5: ", ESP_ERR_SYNTAX},
        {"7", "t.json:1:1: ", ESP_ERR_SYNTAX},
        {"{\"a\": 1,\n\"a\": 2}", "t.json:2:3: duplicate object key", ESP_ERR_SYNTAX},
        {"[9223372036854775808]", "too big integer", ESP_ERR_SYNTAX},
        {"[1e999]", "real number overflow", ESP_ERR_SYNTAX},
        {"[NaN]", "t.json:1:", ESP_ERR_SYNTAX},
        {"[\"\xff\"]", "t.json:1:", ESP_ERR_SYNTAX},
        {"[\"\\u0000\"]", "t.json:1:", ESP_ERR_SYNTAX},
        {"[\"\\\"[\", \"", "t.json:1:", ESP_ERR_SYNTAX},
        {"[\"\\", "t.json:1:", ESP_ERR_SYNTAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        esp_i_json_doc_t *doc = NULL;
        esp_diag_t diag = {0};
        int64_t length = (int64_t)strlen(cases[i].text);
        test_assert_fails(esp_i_json_parse(NULL, cases[i].text, length, "t.json", &doc, &diag),
                          &diag, cases[i].status, cases[i].message);
        assert_null(doc);
    }
}

static void test_limits(void **state)
{
    (void)state;
    enum { DEEP = ESP_I_JSON_MAX_DEPTH };
    char text[2 * DEEP + 10];
    esp_diag_t diag = {0};
    esp_i_json_doc_t *doc;
    memset(text, '[', DEEP);
    memset(text + DEEP, ']', DEEP);
    test_assert_ok(esp_i_json_parse(NULL, text, 2 * DEEP, NULL, &doc, &diag), &diag);
    esp_i_json_t value = esp_i_json_root(doc);
    while (esp_i_json_count(value) > 0)
        value = esp_i_json_item(value, 0);
    test_assert_fails(esp_i_json_fail(value, &diag, ESP_ERR_INVALID, "deep"), &diag,
                      ESP_ERR_INVALID, "[0][0]");
    esp_i_json_destroy(doc);
    diag = (esp_diag_t){0};
    memset(text, '[', sizeof text);
    text[1] = '\n';
    test_assert_fails(esp_i_json_parse(NULL, text, sizeof text, "t", &doc, &diag), &diag,
                      ESP_ERR_LIMIT, "t:2:64: nested deeper than 64 levels");
    test_assert_fails(esp_i_json_parse(NULL, text, ESP_I_JSON_MAX_BYTES + 1, "t", &doc, &diag),
                      &diag, ESP_ERR_LIMIT, "larger than the limit");
}

/* What is written reads as itself, whatever the order in which jansson would keep it. */
static void test_round_trip(void **state)
{
    (void)state;
    esp_i_text_t text, again;
    esp_i_json_out_t out;
    esp_i_text_init(&text, NULL);
    esp_i_text_init(&again, NULL);
    esp_i_json_out_init(&out, &text);
    esp_i_json_open_object(&out, NULL);
    for (int i = 0; i < 300; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "k%d", i * 7919 % 1000);
        esp_i_json_put_int(&out, key, i);
    }
    esp_i_json_open_array(&out, "reals");
    esp_i_json_put_real(&out, NULL, 1e-7);
    esp_i_json_put_real(&out, NULL, -0.0);
    esp_i_json_put_bool(&out, NULL, false);
    esp_i_json_put_null(&out, NULL);
    esp_i_json_put_string(&out, NULL, "\t\xe2\x82\xac");
    esp_i_json_close(&out);
    esp_i_json_close(&out);
    esp_i_json_doc_t *doc = parse(text.data);
    esp_i_json_out_init(&out, &again);
    esp_i_json_put_value(&out, NULL, esp_i_json_root(doc));
    assert_string_equal(again.data, text.data);
    esp_i_json_destroy(doc);
    esp_i_text_fini(&text);
    esp_i_text_fini(&again);
}

static esp_status_t read_file(const esp_allocator_t *alloc, void *context)
{
    esp_i_json_doc_t *doc;
    ESP_TRY(esp_i_json_read(alloc, context, &doc, NULL));
    esp_i_json_destroy(doc);
    return ESP_OK;
}

static void test_read_file_named(void **state)
{
    (void)state;
    test_dir_t dir;
    char path[TEST_PATH_MAX];
    esp_diag_t diag = {0};
    esp_i_json_doc_t *doc;
    static const char good[] = "{\"name\": [\"a\", \"b\", {\"c\": 1}]}";
    test_dir_make(&dir);
    test_assert_fails(esp_i_json_read(NULL, test_dir_file(&dir, "x.json", path), &doc, &diag),
                      &diag, ESP_ERR_IO, "x.json: cannot open: No such file or directory");
    test_write_file(path, good, sizeof good - 1);
    test_sweep_allocations(read_file, path, 1);
    test_write_file(path, good, sizeof good - 2);
    test_assert_fails(esp_i_json_read(NULL, path, &doc, &diag), &diag, ESP_ERR_SYNTAX, "x.json:1:");
    test_dir_remove(&dir);
}

static void test_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        int32_t length;
    } cases[] = {{"a", 1},
                 {"\xc3\xa9", 2},
                 {"\xe2\x82\xac", 3},
                 {"\xf0\x9f\x8c\xb3", 4},
                 {"\xf4\x8f\xbf\xbf", 4},
                 {"\x80", 0},
                 {"\xc1\xbf", 0},
                 {"\xc3", 0},
                 {"\xc3(", 0},
                 {"\xe0\x9f\xbf", 0},
                 {"\xed\xa0\x80", 0},
                 {"\xf0\x8f\xbf\xbf", 0},
                 {"\xf4\x90\x80\x80", 0},
                 {"\xe2\x82(", 0},
                 {"\xf5\x80\x80\x80", 0},
                 {"", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(esp_i_utf8_length(cases[i].bytes, strlen(cases[i].bytes)),
                         cases[i].length);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_document),
        cmocka_unit_test(test_write_reals),
        cmocka_unit_test(test_reals_round_trip),
        cmocka_unit_test(test_navigate),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_value_errors),
        cmocka_unit_test(test_syntax_errors),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_read_file_named),
        cmocka_unit_test(test_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
