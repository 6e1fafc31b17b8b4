/* What the reports share: numbers for people, tables that keep within a line, finished texts. */
#ifndef ESP_REPORT_INTERNAL_H
#define ESP_REPORT_INTERNAL_H

#include "base/base.h"
#include "base/json.h"
#include "espalier/costs.h"
#include "espalier/report.h"

#define ESP_I_REPORT_WIDTH   100 /* columns of a line */
#define ESP_I_REPORT_COLUMNS 12

/* ---- numbers: three significant digits ------------------------------------------------------ */

/* "4.09 GFLOP" for unit "FLOP", "25.6 M" for unit "", "161" below 1000. */
void esp_i_report_si(double value, const char *unit, char out[32]);
/* "99.8 %", of a share in [0, 1]. */
void esp_i_report_percent(double share, char out[32]);

/* ---- tables --------------------------------------------------------------------------------- */

/* WRAP: the last column only; what does not fit goes on in further lines. */
typedef enum esp_i_align { ESP_I_LEFT, ESP_I_RIGHT, ESP_I_WRAP } esp_i_align_t;

typedef struct esp_i_column {
    const char *header;
    esp_i_align_t align;
} esp_i_column_t;

/* Cells are added row by row. Memory is looked at once, when the table is printed. */
typedef struct esp_i_table {
    esp_i_arena_t arena;
    const esp_i_column_t *column;
    int32_t n_columns;
    ESP_VEC(const char *) cell;
    bool failed;
} esp_i_table_t;
/* `column` must outlive the table. */
void esp_i_table_init(esp_i_table_t *table, const esp_allocator_t *alloc, int32_t n,
                      const esp_i_column_t *column);
void esp_i_table_cell(esp_i_table_t *table, const char *format, ...) ESP_PRINTF(2, 3);
/*
 * Appends the table, `indent` blanks in front of each line. Where lines would be too long, the last
 * column is wrapped if it may be, or cells of the widest text columns are cut in their middle.
 * Releases the table.
 */
void esp_i_table_print(esp_i_table_t *table, int32_t indent, esp_i_text_t *text);

/* ---- measured costs (coverage.c) ------------------------------------------------------------ */

typedef struct esp_i_coverage {
    int32_t measured, all;
} esp_i_coverage_t;
/* Compute tasks of a deployment; NULL: none. */
esp_i_coverage_t esp_i_task_coverage(const esp_deployment_t *deployment);
/* Ops of a graph that take time, on a device type. */
esp_status_t esp_i_op_coverage(const esp_graph_t *graph, const esp_costs_type_t *type,
                               const esp_allocator_t *alloc, esp_i_coverage_t *out,
                               esp_diag_t *diag);

/* ---- texts ---------------------------------------------------------------------------------- */

esp_status_t esp_i_report_check(const esp_report_opts_t *opts, esp_diag_t *diag);
/* Bytes of the first line of `words` that fits `room`: up to a blank, or one overlong word. */
size_t esp_i_report_line(const char *words, size_t room);
/* Appends words, broken at blanks within the line; lines after the first get `indent` blanks. */
void esp_i_report_wrap(esp_i_text_t *text, int32_t indent, const char *words);
/* Hands the text over to the caller, or fails for want of memory; `text` is released either way. */
esp_status_t esp_i_report_finish(esp_i_text_t *text, char **text_out, esp_diag_t *diag);

#endif
