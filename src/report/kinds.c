/* esp_report_kinds: the registry and the import rules. */
#include "espalier/onnx.h"
#include "report/report.h"

#include <stdio.h>

static const char *const families[] = {
    [ESP_FAMILY_CONTRACT] = "contract",   [ESP_FAMILY_CONV] = "conv",
    [ESP_FAMILY_MEMORY] = "memory",       [ESP_FAMILY_GATHER] = "gather",
    [ESP_FAMILY_RECURRENT] = "recurrent", [ESP_FAMILY_FREE] = "free",
};
_Static_assert(sizeof families / sizeof *families == ESP_FAMILY_COUNT, "one name per family");

static const char *yes(int32_t flag)
{
    return flag ? "yes" : "-";
}

static void put_kinds(const esp_allocator_t *alloc, esp_i_text_t *text)
{
    static const esp_i_column_t columns[] = {
        {"kind", ESP_I_LEFT},     {"factors", ESP_I_LEFT}, {"linear", ESP_I_LEFT},
        {"gradient", ESP_I_LEFT}, {"cost", ESP_I_LEFT},    {"what it computes", ESP_I_WRAP}};
    esp_i_table_t table;
    esp_i_table_init(&table, alloc, 6, columns);
    for (int32_t kind = 0; kind < ESP_KIND_COUNT; kind++) {
        esp_kind_facts_t facts = esp_kind_facts((esp_op_kind_t)kind);
        esp_i_table_cell(&table, "%s", esp_kind_name((esp_op_kind_t)kind));
        esp_i_table_cell(&table, "%s", yes(facts.has_factors));
        esp_i_table_cell(&table, "%s", yes(facts.is_linear));
        esp_i_table_cell(&table, "%s", yes(facts.has_gradient));
        esp_i_table_cell(&table, "%s", facts.is_view ? "view" : families[facts.family]);
        esp_i_table_cell(&table, "%s", esp_kind_help((esp_op_kind_t)kind));
    }
    esp_i_table_print(&table, 0, text);
}

static void put_rules(const esp_allocator_t *alloc, esp_i_text_t *text)
{
    static const esp_i_column_t columns[] = {
        {"ONNX op", ESP_I_LEFT}, {"opsets", ESP_I_LEFT}, {"becomes", ESP_I_WRAP}};
    esp_i_table_t table;
    esp_onnx_op_t op;
    esp_i_table_init(&table, alloc, 3, columns);
    for (int32_t i = 0; esp_onnx_op_at(i, &op); i++) {
        esp_i_table_cell(&table, "%s%s%s", op.domain, op.domain[0] != '\0' ? "." : "", op.name);
        esp_i_table_cell(&table, "%d-%d", (int)op.since, (int)op.until);
        esp_i_table_cell(&table, "%s", op.becomes);
    }
    esp_i_table_print(&table, 0, text);
}

static void json_kinds(esp_i_json_out_t *out)
{
    esp_i_json_open_array(out, "kinds");
    for (int32_t kind = 0; kind < ESP_KIND_COUNT; kind++) {
        esp_kind_facts_t facts = esp_kind_facts((esp_op_kind_t)kind);
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "kind", esp_kind_name((esp_op_kind_t)kind));
        esp_i_json_put_string(out, "help", esp_kind_help((esp_op_kind_t)kind));
        esp_i_json_put_string(out, "family", families[facts.family]);
        esp_i_json_put_bool(out, "factors", facts.has_factors);
        esp_i_json_put_bool(out, "linear", facts.is_linear);
        esp_i_json_put_bool(out, "gradient", facts.has_gradient);
        esp_i_json_put_bool(out, "view", facts.is_view);
        esp_i_json_put_bool(out, "random", facts.is_random);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

static void json_rules(esp_i_json_out_t *out)
{
    esp_onnx_op_t op;
    esp_i_json_open_array(out, "onnx");
    for (int32_t i = 0; esp_onnx_op_at(i, &op); i++) {
        esp_i_json_next_flat(out);
        esp_i_json_open_object(out, NULL);
        esp_i_json_put_string(out, "domain", op.domain);
        esp_i_json_put_string(out, "op", op.name);
        esp_i_json_put_int(out, "since", op.since);
        esp_i_json_put_int(out, "until", op.until);
        esp_i_json_put_string(out, "becomes", op.becomes);
        esp_i_json_close(out);
    }
    esp_i_json_close(out);
}

esp_status_t esp_report_kinds(const esp_report_opts_t *opts, const esp_allocator_t *alloc,
                              char **text_out, esp_diag_t *diag)
{
    esp_allocator_t memory = esp_i_allocator(alloc);
    esp_i_text_t text;
    ESP_TRY(esp_i_report_check(opts, diag));
    esp_i_text_init(&text, &memory);
    if (opts->form == ESP_REPORT_JSON) {
        esp_i_json_out_t out;
        esp_i_json_out_init(&out, &text);
        esp_i_json_open_object(&out, NULL);
        json_kinds(&out);
        json_rules(&out);
        esp_i_json_close(&out);
    } else {
        put_kinds(&memory, &text);
        esp_i_text_add(&text, "\n");
        put_rules(&memory, &text);
    }
    return esp_i_report_finish(&text, text_out, diag);
}
