/* Interpreter of deployments. */
#include "deploy_interp.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct deploy_interp {
    const esp_deployment_t *d;
    const esp_graph_t *graph;
    int32_t n_devices;
    uint64_t seed, step;
    double **memory; /* [root buffer][device]; NULL where the device is not of its class */
    double **arena;  /* per device, once packed: a double for each byte */
    double **given;  /* per tensor: values of deploy_interp_set */
};

static void *allocate(int64_t n, size_t size)
{
    void *memory = calloc(n > 0 ? (size_t)n : 1, size);
    assert_non_null(memory);
    return memory;
}

/* ---- what a device holds ----------------------------------------------------------------- */

static int32_t mesh_size(const esp_deployment_t *d, int32_t mesh)
{
    return d->mesh_offset[mesh + 1] - d->mesh_offset[mesh];
}

/* Number of a device in a mesh; ESP_NONE: not in it. */
static int32_t index_in_mesh(const esp_deployment_t *d, int32_t mesh, int32_t device)
{
    for (int32_t k = 0; k < mesh_size(d, mesh); k++)
        if (d->mesh_device[d->mesh_offset[mesh] + k] == device)
            return k;
    return ESP_NONE;
}

/* The buffer of a value on a device of its mesh. */
static int32_t buffer_on(const esp_deployment_t *d, int32_t value, int32_t device)
{
    const int32_t mesh = d->value_mesh[value], first = d->mesh_class_offset[mesh];
    for (int32_t slot = 0; first + slot < d->mesh_class_offset[mesh + 1]; slot++)
        if (d->mesh_class[first + slot] == d->device_class[device])
            return d->value_buffer[value] + slot;
    fail_msg("value %d has no buffer for device %d", value, device);
    return ESP_NONE;
}

/* Shape and place of what a device holds of a value; without data. */
static esp_i_buffer_t shape_of(const deploy_interp_t *interp, int32_t value, int32_t device)
{
    const esp_deployment_t *d = interp->d;
    esp_view_t view;
    int64_t offset, share;
    const int32_t k = index_in_mesh(d, d->value_mesh[value], device);
    assert_int_not_equal(k, ESP_NONE);
    esp_deployment_share(d, value, k, &view, &offset, &share);
    return buffer_of(interp->graph, d->value_tensor[value], view, offset, share);
}

/* First element of a local buffer within the whole tensor; the buffer must be one piece of it. */
static int64_t start_of(const esp_i_buffer_t *buffer)
{
    if (buffer->view.extent == 0)
        return 0;
    assert_int_equal(buffer->view.outer, 1);
    return buffer->offset * buffer->view.inner;
}

/* Where an alias starts in the memory of its root. */
static int64_t alias_offset(const deploy_interp_t *interp, int32_t root, int32_t device,
                            const esp_i_buffer_t *buffer)
{
    const esp_i_buffer_t whole = shape_of(interp, interp->d->buffer_value[root], device);
    const int64_t n = esp_i_buffer_elements(buffer), room = esp_i_buffer_elements(&whole);
    if (n == room)
        return 0;
    const int64_t offset = start_of(buffer) - start_of(&whole);
    assert_true(offset >= 0 && offset + n <= room);
    return offset;
}

/* The local buffer with its data. */
static esp_i_buffer_t local(const deploy_interp_t *interp, int32_t buffer, int32_t device)
{
    const esp_deployment_t *d = interp->d;
    const int32_t root = d->buffer_root[buffer];
    esp_i_buffer_t at = shape_of(interp, d->buffer_value[buffer], device);
    double *memory = interp->memory[(int64_t)root * interp->n_devices + device];
    assert_int_equal(d->buffer_root[root], root);
    assert_non_null(memory);
    at.data = memory + (root == buffer ? 0 : alias_offset(interp, root, device, &at));
    return at;
}

static esp_i_buffer_t local_of(const deploy_interp_t *interp, int32_t value, int32_t device)
{
    return local(interp, buffer_on(interp->d, value, device), device);
}

static bool same_place(const esp_i_buffer_t *a, const esp_i_buffer_t *b)
{
    if (a->view.extent == 0 || b->view.extent == 0)
        return a->view.extent == b->view.extent;
    return a->view.outer == b->view.outer && a->view.extent == b->view.extent &&
           a->view.inner == b->view.inner && a->offset == b->offset && a->share == b->share;
}

/* ---- memory ------------------------------------------------------------------------------ */

static const char *tensor_name(const esp_deployment_t *d, int32_t buffer)
{
    return d->graph->tensor_name[d->value_tensor[d->buffer_value[buffer]]];
}

/* The planned bytes must hold what the interpreter puts there, at the stored size of an element. */
static void check_room(const deploy_interp_t *interp, int32_t buffer, int64_t elements)
{
    const esp_deployment_t *d = interp->d;
    const esp_tensor_id_t t = d->value_tensor[d->buffer_value[buffer]];
    const double size = d->cost->tensor_bytes[t] / (double)d->graph->tensor_elements[t];
    if ((double)d->buffer_bytes[buffer] + 1e-6 < size * (double)elements)
        fail_msg("buffer %d of %s has %lld bytes for %lld elements", buffer, tensor_name(d, buffer),
                 (long long)d->buffer_bytes[buffer], (long long)elements);
}

/* All elements of a tensor that no op makes. */
static double *initial(const deploy_interp_t *interp, esp_tensor_id_t tensor)
{
    const esp_graph_t *g = interp->graph;
    double *whole = allocate(g->tensor_elements[tensor], sizeof *whole);
    assert_int_equal(g->tensor_producer[tensor], ESP_NONE);
    if (interp->given[tensor])
        memcpy(whole, interp->given[tensor], (size_t)g->tensor_elements[tensor] * sizeof *whole);
    else
        interp_default(g, tensor, interp->seed, interp->step, whole);
    return whole;
}

typedef enum when { AT_START, AT_STEP } when_t;

/* Fills memory: resident at the start, inputs and poison before each step. */
static void fill(const deploy_interp_t *interp, when_t when)
{
    const esp_deployment_t *d = interp->d;
    for (int32_t b = 0; b < d->n_buffers; b++) {
        const esp_tensor_id_t t = d->value_tensor[d->buffer_value[b]];
        const bool input = interp->graph->tensor_role[t] == ESP_ROLE_INPUT;
        const bool drawn = d->buffer_resident[b] && (when == AT_START || input);
        if (d->buffer_root[b] != b || (d->buffer_resident[b] && !drawn))
            continue;
        double *whole = drawn ? initial(interp, t) : NULL;
        for (int32_t device = 0; device < interp->n_devices; device++) {
            if (d->device_class[device] != d->buffer_class[b])
                continue;
            const esp_i_buffer_t at = local(interp, b, device);
            if (drawn)
                buffer_take(&at, whole);
            for (int64_t i = 0; !drawn && i < esp_i_buffer_elements(&at); i++)
                at.data[i] = (double)NAN;
        }
        free(whole);
    }
}

deploy_interp_t *deploy_interp_new(const esp_deployment_t *d, uint64_t seed)
{
    deploy_interp_t *interp = allocate(1, sizeof *interp);
    *interp = (deploy_interp_t){.d = d, .graph = d->graph, .seed = seed};
    interp->n_devices = d->cluster->n_devices;
    interp->memory = allocate((int64_t)d->n_buffers * interp->n_devices, sizeof *interp->memory);
    interp->given = allocate(d->graph->n_tensors, sizeof *interp->given);
    interp->arena = allocate(interp->n_devices, sizeof *interp->arena);
    for (int32_t device = 0; device < interp->n_devices && d->buffer_offset; device++)
        if (d->device_class[device] != ESP_NONE)
            interp->arena[device] =
                allocate(d->class_arena_bytes[d->device_class[device]], sizeof(double));
    for (int32_t b = 0; b < d->n_buffers; b++)
        for (int32_t device = 0; device < interp->n_devices; device++) {
            if (d->buffer_root[b] != b || d->device_class[device] != d->buffer_class[b])
                continue;
            const esp_i_buffer_t at = shape_of(interp, d->buffer_value[b], device);
            check_room(interp, b, esp_i_buffer_elements(&at));
            interp->memory[(int64_t)b * interp->n_devices + device] =
                d->buffer_offset ? interp->arena[device] + d->buffer_offset[b] : buffer_alloc(&at);
        }
    fill(interp, AT_START);
    return interp;
}

void deploy_interp_free(deploy_interp_t *interp)
{
    if (!interp)
        return;
    for (int64_t i = 0; i < (int64_t)interp->d->n_buffers * interp->n_devices; i++)
        if (!interp->d->buffer_offset)
            free(interp->memory[i]);
    for (int32_t device = 0; device < interp->n_devices; device++)
        free(interp->arena[device]);
    free(interp->arena);
    for (esp_tensor_id_t t = 0; t < interp->graph->n_tensors; t++)
        free(interp->given[t]);
    free(interp->memory);
    free(interp->given);
    free(interp);
}

void deploy_interp_set(deploy_interp_t *interp, esp_tensor_id_t tensor, const double *values)
{
    const int64_t n = interp->graph->tensor_elements[tensor];
    assert_int_equal(interp->graph->tensor_role[tensor], ESP_ROLE_INPUT);
    free(interp->given[tensor]);
    interp->given[tensor] = allocate(n, sizeof *values);
    memcpy(interp->given[tensor], values, (size_t)n * sizeof *values);
}

/* ---- compute tasks ----------------------------------------------------------------------- */

typedef struct part {
    esp_factor_t factor;
    int64_t offset, share;
} part_t;

/* Which part of its op a task does on device number k of a mesh. */
static part_t part_of(const esp_deployment_t *d, int32_t task, int32_t mesh, int32_t k)
{
    const esp_graph_t *g = d->graph;
    const esp_op_id_t op = d->task_op[task];
    const int32_t micro = d->task_micro[task], n = mesh_size(d, mesh);
    const int64_t rows = g->batch / d->micro_batches;
    part_t part = {.factor = {.dim = ESP_NONE}};
    switch ((esp_mode_t)d->task_mode[task]) {
    case ESP_MODE_BATCH:
        part.factor = g->op_batch[op];
        part.offset = micro == ESP_NONE ? 0 : micro * rows;
        for (int32_t i = 0; i <= k; i++) {
            part.offset += part.share;
            part.share = d->mesh_units[d->mesh_offset[mesh] + i] *
                         (micro == ESP_NONE ? d->micro_batches : 1);
        }
        break;
    case ESP_MODE_SHARD: {
        const int64_t e = g->tensor_elements[g->input_tensor[g->input_offset[op]]];
        assert_true(esp_graph_factor(g, op, 0, (esp_view_t){1, e, 1}, &part.factor));
        part.offset = k * e / n;
        part.share = (k + 1) * e / n - part.offset;
        break;
    }
    case ESP_MODE_WHOLE:
        if (micro != ESP_NONE && g->op_batch[op].dim != ESP_NONE)
            part = (part_t){g->op_batch[op], micro * rows, rows};
        break;
    }
    return part;
}

/* Connects an operand of a call with the buffer that the task names for it. */
static void connect(const deploy_interp_t *interp, int32_t task, esp_i_buffer_t *operand,
                    int32_t buffer, int32_t device)
{
    const esp_deployment_t *d = interp->d;
    const esp_i_buffer_t at = local(interp, buffer, device);
    const int64_t expected = esp_i_buffer_elements(operand);
    if (expected != esp_i_buffer_elements(&at) || !same_place(operand, &at))
        fail_msg("op %s on device %d: buffer %d of %s holds [%lld, +%lld) of %lld, not [%lld, "
                 "+%lld) of %lld",
                 d->graph->op_name[d->task_op[task]], device, buffer, tensor_name(d, buffer),
                 (long long)at.offset, (long long)at.share, (long long)at.view.extent,
                 (long long)operand->offset, (long long)operand->share,
                 (long long)operand->view.extent);
    operand->data = at.data;
}

void deploy_interp_call(const esp_deployment_t *d, int32_t task, int32_t device,
                        kernel_call_t *call_out)
{
    const int32_t written = d->write_buffer[d->write_offset[task]];
    const int32_t mesh = d->value_mesh[d->buffer_value[written]];
    const part_t part = part_of(d, task, mesh, index_in_mesh(d, mesh, device));
    kernel_local(d->graph, d->task_op[task], part.factor, part.offset, part.share, call_out);
}

static void compute(const deploy_interp_t *interp, int32_t task, int32_t device)
{
    const esp_deployment_t *d = interp->d;
    const int32_t *read = d->read_buffer + d->read_offset[task];
    const int32_t *written = d->write_buffer + d->write_offset[task];
    const int32_t n_reads = d->read_offset[task + 1] - d->read_offset[task];
    kernel_call_t call;
    deploy_interp_call(d, task, device, &call);
    assert_int_equal(call.kernel.n_in, n_reads);
    assert_int_equal(call.kernel.n_out, d->write_offset[task + 1] - d->write_offset[task]);
    for (int32_t i = 0; i < call.n_operands; i++) {
        const int32_t buffer = i < n_reads ? read[i] : written[i - n_reads];
        assert_int_equal(buffer == ESP_NONE, call.operand[i].rank < 0);
        if (buffer != ESP_NONE)
            connect(interp, task, &call.operand[i], buffer, device);
    }
    call.kernel.seed = interp->seed;
    call.kernel.step = interp->step;
    call.kernel.local_batchnorm = !d->sync_batchnorm;
    kernel_call_run(interp->graph, d->task_op[task], &call);
    kernel_call_fini(&call);
}

static void add(const deploy_interp_t *interp, int32_t task, int32_t device)
{
    const esp_deployment_t *d = interp->d;
    const esp_i_buffer_t to = local(interp, d->write_buffer[d->write_offset[task]], device);
    const int64_t n = esp_i_buffer_elements(&to);
    double *sum = buffer_alloc(&to);
    for (int32_t r = d->read_offset[task]; r < d->read_offset[task + 1]; r++) {
        const esp_i_buffer_t from = local(interp, d->read_buffer[r], device);
        assert_int_equal(esp_i_buffer_elements(&from), n);
        for (int64_t i = 0; i < n; i++)
            sum[i] += from.data[i];
    }
    memcpy(to.data, sum, (size_t)n * sizeof *sum);
    free(sum);
}

/* ---- movements --------------------------------------------------------------------------- */

static double *blank(int64_t n, double value)
{
    double *whole = allocate(n, sizeof *whole);
    for (int64_t i = 0; i < n; i++)
        whole[i] = value;
    return whole;
}

/* The whole of a value: the sum of its addends, its pieces joined, or what all replicas hold. */
static double *join(const deploy_interp_t *interp, int32_t value)
{
    const esp_deployment_t *d = interp->d;
    const int32_t mesh = d->value_mesh[value];
    const esp_form_t form = (esp_form_t)d->value_form[value];
    const int64_t n = interp->graph->tensor_elements[d->value_tensor[value]];
    double *whole = blank(n, form == ESP_FORM_PARTIAL ? 0 : (double)NAN);
    for (int32_t k = 0; k < mesh_size(d, mesh); k++) {
        const esp_i_buffer_t at = local_of(interp, value, d->mesh_device[d->mesh_offset[mesh] + k]);
        if (form == ESP_FORM_PARTIAL) {
            buffer_add(&at, whole);
        } else if (form == ESP_FORM_SPLIT || k == 0) {
            buffer_put(&at, whole);
        } else {
            esp_i_buffer_t copy = at;
            copy.data = buffer_alloc(&at);
            buffer_take(&copy, whole);
            if (memcmp(copy.data, at.data, (size_t)esp_i_buffer_elements(&at) * sizeof(double)))
                fail_msg("replicas of %s differ",
                         interp->graph->tensor_name[d->value_tensor[value]]);
            free(copy.data);
        }
    }
    return whole;
}

static void slice(const deploy_interp_t *interp, int32_t task, int32_t device)
{
    const esp_deployment_t *d = interp->d;
    const esp_i_buffer_t from = local(interp, d->read_buffer[d->read_offset[task]], device);
    const esp_i_buffer_t to = local(interp, d->write_buffer[d->write_offset[task]], device);
    const int32_t value = d->buffer_value[d->read_buffer[d->read_offset[task]]];
    double *whole = blank(interp->graph->tensor_elements[d->value_tensor[value]], (double)NAN);
    buffer_put(&from, whole);
    buffer_take(&to, whole);
    free(whole);
}

/* The forms that each kind of movement takes and gives, and whether it stays on its devices. */
static void check_forms(const esp_deployment_t *d, esp_comm_t kind, int32_t src, int32_t dst)
{
    static const struct {
        esp_form_t from, to;
        int32_t same_mesh; /* 1: must be, 0: must not be, -1: may be */
    } rule[ESP_COMM_COUNT] = {
        [ESP_COMM_ALLREDUCE] = {ESP_FORM_PARTIAL, ESP_FORM_REPLICATED, 1},
        [ESP_COMM_REDUCE_SCATTER] = {ESP_FORM_PARTIAL, ESP_FORM_SPLIT, 1},
        [ESP_COMM_ALL_GATHER] = {ESP_FORM_SPLIT, ESP_FORM_REPLICATED, 1},
        [ESP_COMM_REDUCE] = {ESP_FORM_PARTIAL, ESP_FORM_REPLICATED, 0},
        [ESP_COMM_BROADCAST] = {ESP_FORM_REPLICATED, ESP_FORM_REPLICATED, 0},
        [ESP_COMM_EXCHANGE] = {ESP_FORM_SPLIT, ESP_FORM_SPLIT, -1},
        [ESP_COMM_GATHER] = {ESP_FORM_SPLIT, ESP_FORM_REPLICATED, 0},
        [ESP_COMM_SCATTER] = {ESP_FORM_REPLICATED, ESP_FORM_SPLIT, 0},
        [ESP_COMM_ALL_TO_ALL] = {ESP_FORM_SPLIT, ESP_FORM_SPLIT, 1},
    };
    assert_int_equal(d->value_tensor[src], d->value_tensor[dst]);
    assert_int_equal(d->value_form[src], rule[kind].from);
    assert_int_equal(d->value_form[dst], rule[kind].to);
    if (rule[kind].same_mesh >= 0)
        assert_int_equal(d->value_mesh[src] == d->value_mesh[dst], rule[kind].same_mesh);
}

/* Whether a device keeps what it has: an alias of what the source holds there. */
static bool keeps(const esp_deployment_t *d, int32_t src, int32_t dst, int32_t device)
{
    if (index_in_mesh(d, d->value_mesh[src], device) == ESP_NONE)
        return false;
    return d->buffer_root[buffer_on(d, src, device)] == d->buffer_root[buffer_on(d, dst, device)];
}

static void move(const deploy_interp_t *interp, esp_comm_t kind, int32_t src, int32_t dst)
{
    const esp_deployment_t *d = interp->d;
    const int32_t mesh = d->value_mesh[dst];
    check_forms(d, kind, src, dst);
    double *whole = join(interp, src);
    for (int32_t k = 0; k < mesh_size(d, mesh); k++) {
        const int32_t device = d->mesh_device[d->mesh_offset[mesh] + k];
        const esp_i_buffer_t at = local_of(interp, dst, device);
        if (kind != ESP_COMM_BROADCAST || !keeps(d, src, dst, device))
            buffer_take(&at, whole);
    }
    free(whole);
}

/* ---- the step ---------------------------------------------------------------------------- */

static void run_task(const deploy_interp_t *interp, int32_t task)
{
    const esp_deployment_t *d = interp->d;
    const esp_task_kind_t kind = (esp_task_kind_t)d->task_kind[task];
    if (kind == ESP_TASK_COMM) {
        const int32_t comm = d->task_comm[task];
        for (int32_t p = d->comm_pair_offset[comm]; p < d->comm_pair_offset[comm + 1]; p++)
            move(interp, (esp_comm_t)d->comm_kind[comm], d->comm_src[p], d->comm_dst[p]);
        return;
    }
    const int32_t class_ = d->task_class[task];
    for (int32_t i = d->class_offset[class_]; i < d->class_offset[class_ + 1]; i++) {
        if (kind == ESP_TASK_COMPUTE)
            compute(interp, task, d->class_device[i]);
        else if (kind == ESP_TASK_ADD)
            add(interp, task, d->class_device[i]);
        else
            slice(interp, task, d->class_device[i]);
    }
}

void deploy_interp_step(deploy_interp_t *interp)
{
    fill(interp, AT_STEP);
    for (int32_t i = 0; i < interp->d->n_tasks; i++)
        run_task(interp, interp->d->order[i]);
    interp->step++;
}

/* ---- results ----------------------------------------------------------------------------- */

void deploy_interp_read(const deploy_interp_t *interp, esp_tensor_id_t tensor, double *values_out)
{
    const esp_deployment_t *d = interp->d;
    int32_t home = 0; /* the first value of a tensor that is updated */
    while (home < d->n_values && d->value_tensor[home] != tensor)
        home++;
    assert_true(home < d->n_values && d->buffer_resident[d->value_buffer[home]]);
    double *whole = join(interp, home);
    memcpy(values_out, whole, (size_t)interp->graph->tensor_elements[tensor] * sizeof *whole);
    free(whole);
}

double deploy_interp_loss(const deploy_interp_t *interp)
{
    const esp_deployment_t *d = interp->d;
    const esp_tensor_id_t loss = interp->graph->tensor_root[interp->graph->loss];
    int32_t value = d->n_values - 1; /* the last one that is of the whole batch */
    while (value >= 0 && (d->value_tensor[value] != loss || d->value_micro[value] != ESP_NONE))
        value--;
    assert_true(value >= 0);
    double *whole = join(interp, value);
    const double result = whole[0];
    free(whole);
    return result;
}
