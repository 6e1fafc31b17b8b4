/*
 * State of one simulation, shared by the files of this module.
 *
 * An instance is a task in a step: number step * n_tasks + task. Time runs in rounds: all that ends
 * at an instant is completed first (memory is freed), then whatever has become ready starts, in the
 * order (position, step). A task of no duration makes another round at the same instant. So nothing
 * depends on the order in which the event queue yields events of equal time.
 */
#ifndef ESP_SIM_INTERNAL_H
#define ESP_SIM_INTERNAL_H

#include "base/base.h"
#include "espalier/sim.h"

typedef enum esp_i_event_kind {
    ESP_I_EVENT_END,     /* a task completes */
    ESP_I_EVENT_LATENCY, /* fair links: the latency of a movement is over */
    ESP_I_EVENT_MEMORY, /* a committed movement starts: its buffers are allocated; after all ends */
    ESP_I_EVENT_WHOLE   /* the same, and it completes: it takes no time */
} esp_i_event_kind_t;

typedef struct esp_i_event {
    int64_t key; /* time * 4 + kind */
    int32_t task, step;
} esp_i_event_t;

/* A class's compute or collective stream: its tasks in the global order, step after step. */
typedef struct esp_i_stream {
    int32_t begin, end, next;     /* into stream_task */
    int32_t step;                 /* of the next task */
    int32_t fifo_head, fifo_tail; /* fifo: instances that are ready, linked by fifo_next */
    bool busy, dirty;
    int32_t started, ended; /* last step: the next to be recorded to start, and to end */
    int32_t final;          /* last of the stretch that runs */
    int64_t until;          /* when that ends */
} esp_i_stream_t;

/* From a task on, those that follow without a word to others: what is left of a stretch. */
typedef struct esp_i_run {
    int64_t ns;
    int32_t length;
} esp_i_run_t;

/* A movement or compute task (fifo) that has become ready. */
typedef struct esp_i_ready {
    int64_t key; /* position * 16 + step */
    int32_t task, step;
} esp_i_ready_t;

/* What ties a task to others than those before and after it on its stream: bits. */
enum { ESP_I_WAITS = 1, ESP_I_TELLS = 2 };

/* Bytes that a compute task takes when it starts and gives back when it ends. */
typedef struct esp_i_change {
    int64_t take, give;
} esp_i_change_t;

/* A movement in flight on fair links, after its latency. */
typedef struct esp_i_flow {
    double full;    /* bytes per ns on the tightest link at full speed */
    double end;     /* slowed: what `served` of its bundle is when it ends */
    double left;    /* at full speed: nanoseconds left at `since` */
    int64_t since;  /* at full speed */
    int64_t finish; /* at full speed */
    int32_t task, step;
} esp_i_flow_t;

/* A link on which movements meet, and that a bundle uses it, during a solve. */
typedef struct esp_i_meet {
    double room;   /* bytes per ns that those which stopped rising leave */
    double weight; /* of those that rise */
    double level;
    int32_t link;
} esp_i_meet_t;

typedef struct esp_i_use {
    double weight;
    int32_t slot; /* into `meet` */
} esp_i_use_t;

/* The movements in flight of one pattern (fair.c). */
typedef struct esp_i_bundle {
    const esp_pattern_t *pattern;
    double tight;         /* load of the tightest link; negative: not worked out yet */
    int32_t first_weight; /* per link of the pattern: load / tight */
    int32_t first_flow;   /* flows: n_slow, a heap on `end`, then those at full speed */
    int32_t n, n_slow;
    double least_full; /* of all its flows */
    double level;      /* rate of the slowed ones: bytes per ns on the tightest link */
    double served;     /* bytes that went to each of them until `since` */
    int64_t since, finish;

    /* during a solve */
    const esp_i_use_t *use; /* links on which it meets others, or itself */
    int32_t n_uses, rising;
    double cap;        /* those with `full` up to here are at full speed */
    double next_cap;   /* least `full` beyond it */
    double next_level; /* of the others */
    double bound;      /* `full` was compared with rates up to here */
} esp_i_bundle_t;

/* A bundle of a set of movements that was in flight before, and its part of the solve (fair.c). */
typedef struct esp_i_rate {
    double cap, level, bound;
    int32_t bundle, n;
} esp_i_rate_t;

typedef struct esp_i_set {
    int32_t first, n; /* into `rate`, in the order of `active`; n 0: none */
} esp_i_set_t;
enum { ESP_I_SET_SLOTS = 4096, ESP_I_RATES = 16384 };

/* What the compute stream of a class has done (taken.c). */
typedef struct esp_i_class_time {
    int64_t computed; /* of all tasks that have started */
    int64_t end;      /* of the last of them */
    int64_t owed;     /* by the next */
} esp_i_class_time_t;

struct esp_sim {
    esp_allocator_t alloc;
    esp_sim_opts_t opts;
    const esp_deployment_t *d;
    const int64_t *ns; /* durations: the deployment's or those of the options */
    int32_t steps, last;

    int64_t now, events;
    bool again; /* a second round, or later, of this instant */
    int64_t step_end[ESP_SIM_STEPS_MAX];

    /* precedence */
    int32_t *pending; /* per instance */
    /* edges that no stream implies: of task t from successor_offset[t] to edge_end[t], and those to
     * the next step as a list of cross edges */
    int32_t *edge, *edge_end;
    int32_t *cross_first, *cross_next; /* per task; per cross edge; ESP_NONE: no more */
    uint8_t *ties;                     /* per task: ESP_I_WAITS, ESP_I_TELLS */
    uint64_t *neighbour;               /* see edges.c */
    int32_t *mark, *first;             /* scratch, per task and per stream */
    int32_t *move, n_moves;            /* tasks that are movements, by id */

    /* streams: compute of class k is stream k, collective is n_classes + k */
    esp_i_stream_t *stream;
    int32_t *stream_task;
    int32_t *place;   /* per task: where it is in stream_task; of movements ESP_NONE */
    esp_i_run_t *run; /* parallel to it; compute streams, steps before the last */
    int32_t *dirty;
    int32_t n_dirty;
    int32_t *fifo_next; /* per instance */

    esp_i_event_t *heap;
    int32_t n_heap;
    esp_i_ready_t *ready;
    int32_t n_ready;

    /* compute time that movements take (taken.c) */
    bool moves_take;
    esp_i_class_time_t *class_time; /* per class */
    int64_t *move_start;            /* [step][comm] */
    int64_t *move_before;           /* [step][class of a comm]: when it started */

    /* links */
    int64_t *link_free; /* exclusive */
    esp_i_flow_t *flow; /* fair: by bundle */
    esp_i_bundle_t *bundle;
    int32_t *comm_bundle, *active; /* per comm; bundles with movements in flight */
    int32_t n_active;
    int32_t *pattern_slot; /* open addressing: bundle by pattern */
    double *weight;
    bool flows_changed;
    int64_t flow_next;               /* earliest finish; INT64_MAX: none */
    int32_t *link_flows, *link_slot; /* per link: flows in flight; place in `meet` */
    esp_i_meet_t *meet;
    esp_i_use_t *use;
    esp_i_set_t *set; /* open addressing */
    esp_i_rate_t *rate;
    int32_t n_sets, n_rates;

    /* memory, in the last step */
    /* per buffer, of its compute stream: indices into stream_task (memory.c) */
    int32_t *last_use, *first_write;
    int32_t *uses; /* per root: reads and writes still to come, of tasks whose place is not known */
    bool counts_all;        /* that is not known of any task */
    esp_i_change_t *change; /* parallel to stream_task */
    int64_t *scratch;    /* of movements, and where all is counted: beyond the buffers of a task, on
                            each device of its classes */
    int64_t *mesh_total; /* per mesh: units of the batch; 0: not summed yet */
    int64_t *live, *peak;           /* per class: transient bytes; resident and transient */
    int64_t *live_role, *peak_role; /* timeline: [class][role] */

    int64_t *busy_ns;       /* per class */
    int64_t *collective_ns; /* per class: of one step */
    double *link_busy_ns;   /* per link: of one step */
    int64_t *start_ns, *end_ns;
    bool has_timeline; /* the last run kept one */

    /* elements of each array above */
    struct {
        int32_t pending, edge, edge_end, cross_first, cross_next, ties, neighbour, mark, first,
            move, run, stream, stream_task, place, dirty, fifo_next, heap, ready, class_time,
            move_start, move_before, link_free, flow, bundle, comm_bundle, active, pattern_slot,
            weight, link_flows, link_slot, meet, use, set, rate, last_use, first_write, uses,
            change, scratch, mesh_total, live, peak, live_role, peak_role, busy_ns, collective_ns,
            link_busy_ns, start_ns, end_ns;
    } capacity;
};

/* Sizes the scratch arrays and fills them for a run. */
esp_status_t esp_i_sim_setup(esp_sim_t *sim, const esp_deployment_t *d, const esp_sim_opts_t *opts);

/* ---- precedence (edges.c) ----------------------------------------------------------------- */

/* The edges that no stream implies, and how many of them each instance waits for. */
void esp_i_edges_fill(esp_sim_t *sim);
/* Stretches of compute streams that are one event, and how busy these streams are. */
void esp_i_runs_fill(esp_sim_t *sim);
/* period.c: what the busiest stream or link allows, after a run. O(links of movements). */
int64_t esp_i_least_period(esp_sim_t *sim);

/* ---- events (run.c) ---------------------------------------------------------------------- */

void esp_i_sim_push(esp_sim_t *sim, int64_t time, esp_i_event_kind_t kind, int32_t task,
                    int32_t step);

/* ---- compute time that movements take (taken.c) ------------------------------------------- */

bool esp_i_taken_any(const esp_sim_t *sim);
void esp_i_taken_reset(esp_sim_t *sim);
/* A task starts now: its end. */
int64_t esp_i_taken_compute(esp_sim_t *sim, int32_t task);
/* A movement starts, or ends, now. O(its classes). */
void esp_i_taken_start(esp_sim_t *sim, int32_t comm, int32_t step);
void esp_i_taken_end(esp_sim_t *sim, int32_t comm, int32_t step);

/* ---- fair links (fair.c) ------------------------------------------------------------------ */

/* Latency first; then, if there is work, a flow. */
void esp_i_fair_start(esp_sim_t *sim, int32_t task, int32_t step);
/* The latency is over: adds a flow, or returns false where the movement is complete. */
bool esp_i_fair_join(esp_sim_t *sim, int32_t task, int32_t step);
/* Takes out a movement that ends now; false: there is none. */
bool esp_i_fair_take(esp_sim_t *sim, int32_t *task_out, int32_t *step_out);
/* New speeds after flows came or went. */
void esp_i_fair_solve(esp_sim_t *sim);

/* ---- the last step (memory.c) --------------------------------------------------------------- */

/* A task of the last step starts or ends now: memory, and the timeline if there is one. */
void esp_i_record_start(esp_sim_t *sim, int32_t task);
void esp_i_record_end(esp_sim_t *sim, int32_t task);
void esp_i_memory_reset(esp_sim_t *sim);

#endif
