/* Writing Chrome traces: what predicted and measured timelines share. */
#ifndef ESP_SIM_TRACE_H
#define ESP_SIM_TRACE_H

#include "base/json.h"
#include "sim/sim.h"

/*
 * A trace under construction. A *row* is a process of the trace: a class (predicted) or a rank
 * (measured), with a compute and a collective stream. The links are one process more.
 */
typedef struct esp_i_trace {
    const esp_deployment_t *d;
    esp_allocator_t alloc;
    esp_i_text_t text, name;
    esp_i_json_out_t out;
    int32_t n_rows;
    const int32_t *row_class;  /* NULL: row k is class k */
    const int32_t *row_device; /* NULL: a row is named after the devices of its class */

    /* The step that is written next. Times are by task, or by row and task: -1 where the row has no
     * part in it. */
    const int64_t *start, *end;
    bool by_row;
    int32_t step;     /* ESP_NONE: there is only one */
    int64_t shift_ns; /* is added to all times */
} esp_i_trace_t;

/* Opens the document; fields up to `row_device` and `by_row` are set. */
void esp_i_trace_begin(esp_i_trace_t *trace);
/* Streams and links of one step. False: no memory. */
bool esp_i_trace_step(esp_i_trace_t *trace);
/* Memory of a predicted step; scratch: per task, beside its buffers. False: no memory. */
bool esp_i_trace_memory(esp_i_trace_t *trace, const int64_t *scratch);
/* Closes the list of events; members of the document may follow. */
void esp_i_trace_end_events(esp_i_trace_t *trace);
/* Closes the document and hands its text over, unless !ok or memory ran out. */
esp_status_t esp_i_trace_finish(esp_i_trace_t *trace, bool ok, char **text_out, esp_diag_t *diag);

/* An event that is to be completed and closed. */
void esp_i_trace_open(esp_i_trace_t *trace, const char *phase, int32_t pid, int32_t tid,
                      const char *name);
/* Trace times are microseconds. */
static inline double esp_i_trace_us(int64_t ns)
{
    return (double)ns / 1000.0;
}

/* Whether devices of a class take part in a task. */
bool esp_i_takes_part(const esp_deployment_t *deployment, int32_t class_, int32_t task);
/*
 * When a task ran on a row, or (row ESP_NONE) from when all that take part in it had started until
 * all had ended. False: the row has no part in it.
 */
bool esp_i_trace_span(const esp_i_trace_t *trace, int32_t row, int32_t task, int64_t *start_out,
                      int64_t *end_out);

#endif
