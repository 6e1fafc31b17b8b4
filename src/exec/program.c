/* The part of a deployment that one device carries out. */
#include "exec/schedule.h"

#include <string.h>

typedef struct compile {
    const esp_deployment_t *d;
    esp_i_program_t *program;
    esp_i_lists_t lists;
    int32_t class_;
    int32_t *instr_of;  /* per task; ESP_NONE: not on this device */
    int32_t *reader[2]; /* per root buffer: see esp_i_lists_t */
    esp_diag_t *diag;
} compile_t;

/* ---- which tasks ----------------------------------------------------------------------------- */

/* Index into comm_class of the device's class; ESP_NONE: it takes no part. */
static int32_t comm_slot(const compile_t *c, int32_t comm)
{
    for (int32_t i = c->d->comm_class_offset[comm]; i < c->d->comm_class_offset[comm + 1]; i++)
        if (c->d->comm_class[i] == c->class_)
            return i;
    return ESP_NONE;
}

static bool takes_part(const compile_t *c, int32_t task)
{
    const int32_t comm = c->d->task_comm[task];
    return comm == ESP_NONE ? c->d->task_class[task] == c->class_ : comm_slot(c, comm) != ESP_NONE;
}

/* Numbers the device's tasks in the global order. */
static bool instrs_find(compile_t *c)
{
    const esp_deployment_t *d = c->d;
    esp_i_program_t *program = c->program;
    for (int32_t p = 0; p < d->n_tasks; p++) {
        const int32_t task = d->order[p];
        const bool mine = takes_part(c, task);
        c->instr_of[task] = mine ? program->n_instrs++ : ESP_NONE;
        program->n_calls += mine && d->task_kind[task] == ESP_TASK_COMPUTE;
    }
    program->instr = esp_i_arena_alloc(&program->memory, program->n_instrs, sizeof *program->instr);
    program->call = esp_i_arena_alloc(&program->memory, program->n_calls, sizeof *program->call);
    return program->instr && program->call;
}

/* The last two positions at which tasks read each root buffer. */
static void readers_find(compile_t *c)
{
    const esp_deployment_t *d = c->d;
    for (int32_t b = 0; b < d->n_buffers; b++)
        c->reader[0][b] = c->reader[1][b] = -1;
    for (int32_t p = 0; p < d->n_tasks; p++) {
        const int32_t task = d->order[p];
        for (int32_t r = d->read_offset[task]; r < d->read_offset[task + 1]; r++) {
            const int32_t root =
                d->read_buffer[r] == ESP_NONE ? ESP_NONE : d->buffer_root[d->read_buffer[r]];
            if (root == ESP_NONE || c->reader[0][root] == p)
                continue;
            c->reader[1][root] = c->reader[0][root];
            c->reader[0][root] = p;
        }
    }
    c->lists.last_reader = c->reader[0];
    c->lists.other_reader = c->reader[1];
}

/* ---- what they do -----------------------------------------------------------------------------
 */

/* Tensors are stored as the graph has them, floats in four or eight bytes. */
static esp_status_t storage_check(const compile_t *c, int32_t buffer)
{
    const esp_deployment_t *d = c->d;
    const esp_graph_t *g = d->graph;
    const esp_tensor_id_t t = d->value_tensor[d->buffer_value[buffer]];
    const esp_dtype_t dtype = (esp_dtype_t)g->tensor_dtype[t];
    const double bytes = (double)(g->tensor_elements[t] * esp_dtype_bytes(dtype));
    if (dtype != ESP_DTYPE_F16 && dtype != ESP_DTYPE_BF16 && d->cost->tensor_bytes[t] >= bytes)
        return ESP_OK;
    return esp_i_fail(
        c->diag, ESP_ERR_UNSUPPORTED,
        "tensor %s is stored in two bytes an element, which no backend does: plan in fp32 or tf32",
        g->tensor_name[t]);
}

/* An operand is the rows that its buffer holds, of the op's own tensor: that may be a reshape. */
static esp_status_t operand_fill(compile_t *c, esp_tensor_id_t tensor, int32_t buffer,
                                 esp_i_local_t *out)
{
    *out = (esp_i_local_t){.rank = -1, .global_rank = -1, .place = -1};
    if (buffer == ESP_NONE)
        return ESP_OK;
    ESP_TRY(storage_check(c, buffer));
    *out = esp_i_local_of(c->d, buffer, c->program->device, c->program->wide);
    esp_i_local_shape(out, c->d->graph, tensor);
    return ESP_OK;
}

static esp_status_t call_fill(compile_t *c, int32_t task, esp_i_call_t *call)
{
    const esp_deployment_t *d = c->d;
    const esp_graph_t *g = d->graph;
    const esp_op_id_t op = d->task_op[task];
    const int32_t *read = d->read_buffer + d->read_offset[task];
    const int32_t *written = d->write_buffer + d->write_offset[task];
    const int64_t scale = c->program->wide ? 2 : 1;
    *call = (esp_i_call_t){.op = op,
                           .name = g->op_name[op],
                           .kind = (esp_op_kind_t)g->op_kind[op],
                           .attr = &g->op_attr[op],
                           .n_in = d->read_offset[task + 1] - d->read_offset[task],
                           .n_out = d->write_offset[task + 1] - d->write_offset[task],
                           .local_batchnorm = !d->sync_batchnorm,
                           .scratch_place = d->task_scratch_offset[task] * scale,
                           .scratch_bytes = esp_deployment_scratch_bytes(d, task) * scale};
    esp_i_local_t *operand =
        esp_i_arena_alloc(&c->program->memory, (int64_t)call->n_in + call->n_out, sizeof *operand);
    if (!operand)
        return esp_i_nomem(c->diag);
    call->operand = operand;
    for (int32_t i = 0; i < call->n_in; i++)
        ESP_TRY(operand_fill(c, g->input_tensor[g->input_offset[op] + i], read[i], operand++));
    for (int32_t i = 0; i < call->n_out; i++)
        ESP_TRY(operand_fill(c, g->output_tensor[g->output_offset[op] + i], written[i], operand++));
    return ESP_OK;
}

static esp_status_t add_fill(compile_t *c, int32_t task)
{
    const esp_deployment_t *d = c->d;
    const int32_t written = d->write_buffer[d->write_offset[task]];
    const int32_t *read = d->read_buffer + d->read_offset[task];
    const int32_t n = d->read_offset[task + 1] - d->read_offset[task];
    const esp_i_local_t to = esp_i_local_of(d, written, c->program->device, c->program->wide);
    int64_t *src = esp_i_alloc_array(&c->lists.alloc, n, sizeof *src);
    esp_status_t status = src ? storage_check(c, written) : esp_i_nomem(c->diag);
    for (int32_t i = 0; i < n && status == ESP_OK; i++)
        src[i] = esp_i_local_of(d, read[i], c->program->device, c->program->wide).place;
    const esp_i_work_t work = {.add = true, .dtype = to.dtype, .n = to.elements, .dst = to.place};
    if (status == ESP_OK && !esp_i_work_push(&c->lists, work, n, src))
        status = esp_i_nomem(c->diag);
    esp_i_free(&c->lists.alloc, src);
    return status;
}

static esp_i_rows_t rows_from(const esp_i_local_t *local)
{
    return (esp_i_rows_t){local->view, local->offset, local->share, local->elements, local->place};
}

static esp_status_t slice_fill(compile_t *c, int32_t task)
{
    const esp_deployment_t *d = c->d;
    const int32_t read = d->read_buffer[d->read_offset[task]];
    const int32_t written = d->write_buffer[d->write_offset[task]];
    const esp_i_local_t from = esp_i_local_of(d, read, c->program->device, c->program->wide);
    const esp_i_local_t to = esp_i_local_of(d, written, c->program->device, c->program->wide);
    const esp_i_rows_t src = rows_from(&from), dst = rows_from(&to);
    const int64_t outer = dst.view.extent ? dst.view.outer : 1;
    const int64_t stride = dst.view.extent * dst.view.inner;
    const int32_t first = c->lists.work.count;
    ESP_TRY(storage_check(c, written));
    for (int64_t o = 0; o < outer; o++) {
        const int64_t begin = o * stride + dst.offset * dst.view.inner;
        esp_i_copy_run(&c->lists, first, &src, &dst, begin, begin + dst.elements / outer,
                       esp_dtype_bytes(to.dtype));
    }
    return c->lists.fine ? ESP_OK : esp_i_nomem(c->diag);
}

static esp_status_t comm_fill(compile_t *c, int32_t task, int32_t slot)
{
    const esp_deployment_t *d = c->d;
    const int32_t comm = d->task_comm[task];
    for (int32_t p = d->comm_pair_offset[comm]; p < d->comm_pair_offset[comm + 1]; p++)
        ESP_TRY(storage_check(c, d->value_buffer[d->comm_src[p]]));
    esp_i_schedule(&c->lists, task, d->comm_scratch_offset[slot] * (c->program->wide ? 2 : 1));
    return c->lists.fine ? ESP_OK : esp_i_nomem(c->diag);
}

static esp_status_t instr_fill(compile_t *c, int32_t task, int32_t *n_calls)
{
    const esp_deployment_t *d = c->d;
    esp_i_instr_t *instr = &c->program->instr[c->instr_of[task]];
    *instr = (esp_i_instr_t){.task = task,
                             .kind = (esp_task_kind_t)d->task_kind[task],
                             .call = ESP_NONE,
                             .comm = d->task_comm[task]};
    instr->first = c->lists.work.count;
    switch (instr->kind) {
    case ESP_TASK_COMPUTE:
        instr->call = (*n_calls)++;
        instr->first = 0;
        return call_fill(c, task, &c->program->call[instr->call]);
    case ESP_TASK_ADD:
        ESP_TRY(add_fill(c, task));
        break;
    case ESP_TASK_SLICE:
        ESP_TRY(slice_fill(c, task));
        break;
    case ESP_TASK_COMM:
        instr->collective = d->comm_collective[instr->comm];
        instr->first = c->lists.stage.count;
        ESP_TRY(comm_fill(c, task, comm_slot(c, instr->comm)));
        instr->n = c->lists.stage.count - instr->first;
        return ESP_OK;
    }
    instr->n = c->lists.work.count - instr->first;
    return ESP_OK;
}

static esp_status_t instrs_fill(compile_t *c)
{
    int32_t n_calls = 0;
    for (int32_t p = 0; p < c->d->n_tasks; p++)
        if (c->instr_of[c->d->order[p]] != ESP_NONE)
            ESP_TRY(instr_fill(c, c->d->order[p], &n_calls));
    return ESP_OK;
}

/* ---- what lives between steps; the loss ---------------------------------------------------------
 */

static esp_status_t residents_find(compile_t *c)
{
    const esp_deployment_t *d = c->d;
    esp_i_program_t *program = c->program;
    int32_t n = 0;
    for (int32_t b = 0; b < d->n_buffers; b++)
        n += d->buffer_resident[b] && d->buffer_root[b] == b && d->buffer_class[b] == c->class_;
    program->resident = esp_i_arena_alloc(&program->memory, n, sizeof *program->resident);
    if (!program->resident)
        return esp_i_nomem(c->diag);
    for (int32_t b = 0; b < d->n_buffers; b++) {
        if (!d->buffer_resident[b] || d->buffer_root[b] != b || d->buffer_class[b] != c->class_)
            continue;
        ESP_TRY(storage_check(c, b));
        program->resident[program->n_residents++] =
            (esp_i_resident_t){.tensor = d->value_tensor[d->buffer_value[b]],
                               .value = d->buffer_value[b],
                               .local = esp_i_local_of(d, b, program->device, program->wide)};
    }
    return ESP_OK;
}

static void loss_find(compile_t *c)
{
    const esp_deployment_t *d = c->d;
    esp_i_program_t *program = c->program;
    if (d->graph->loss == ESP_NONE)
        return;
    const esp_tensor_id_t loss = d->graph->tensor_root[d->graph->loss];
    int32_t value = d->n_values - 1; /* the last one that is of the whole batch */
    while (value >= 0 && (d->value_tensor[value] != loss || d->value_micro[value] != ESP_NONE))
        value--;
    if (value < 0)
        return;
    const int32_t k = esp_i_mesh_index(d, d->value_mesh[value], program->device);
    if (k == ESP_NONE)
        return;
    const int32_t buffer = esp_i_buffer_on(d, value, c->class_), made = d->buffer_producer[buffer];
    program->loss_place = esp_i_local_of(d, buffer, program->device, program->wide).place;
    program->loss_instr = made == ESP_NONE ? ESP_NONE : c->instr_of[made];
    program->loss_counts = k == 0 || d->value_form[value] == ESP_FORM_PARTIAL;
}

/* ---- the program
 * --------------------------------------------------------------------------------- */

/* The lists move into the memory of the program. */
static bool lists_keep(compile_t *c)
{
    esp_i_program_t *program = c->program;
    esp_i_lists_t *lists = &c->lists;
#define KEEP(name)                                                                                 \
    program->name = esp_i_arena_alloc(&program->memory, lists->name.count, sizeof *program->name); \
    if (!program->name)                                                                            \
        return false;                                                                              \
    if (lists->name.count > 0)                                                                     \
        memcpy(program->name, lists->name.data, (size_t)lists->name.count * sizeof *program->name);
    KEEP(stage)
    KEEP(transfer)
    KEEP(extent)
    KEEP(work)
    KEEP(work_src)
#undef KEEP
    return true;
}

static esp_status_t compile(compile_t *c)
{
    if (c->class_ == ESP_NONE)
        return ESP_OK;
    if (!instrs_find(c))
        return esp_i_nomem(c->diag);
    readers_find(c);
    ESP_TRY(instrs_fill(c));
    if (!lists_keep(c) || !esp_i_waits_find(c->program, c->instr_of))
        return esp_i_nomem(c->diag);
    ESP_TRY(residents_find(c));
    loss_find(c);
    return ESP_OK;
}

static void lists_free(esp_i_lists_t *lists)
{
    esp_vec_free(&lists->alloc, &lists->stage);
    esp_vec_free(&lists->alloc, &lists->transfer);
    esp_vec_free(&lists->alloc, &lists->extent);
    esp_vec_free(&lists->alloc, &lists->work);
    esp_vec_free(&lists->alloc, &lists->work_src);
}

/* Allocates what is needed during compilation, and compiles. */
static esp_status_t compile_all(compile_t *c)
{
    const esp_deployment_t *d = c->d;
    const esp_allocator_t *alloc = &c->lists.alloc;
    c->instr_of = esp_i_alloc_array(alloc, (int64_t)d->n_tasks + 1, sizeof *c->instr_of);
    for (int32_t i = 0; i < 2; i++)
        c->reader[i] = esp_i_alloc_array(alloc, (int64_t)d->n_buffers + 1, sizeof *c->reader[i]);
    const bool fine = c->instr_of && c->reader[0] && c->reader[1];
    const esp_status_t status = fine ? compile(c) : esp_i_nomem(c->diag);
    lists_free(&c->lists);
    esp_i_free(alloc, c->instr_of);
    esp_i_free(alloc, c->reader[0]);
    esp_i_free(alloc, c->reader[1]);
    return status;
}

esp_status_t esp_i_program_create(const esp_deployment_t *d, int32_t device, bool wide,
                                  esp_i_library_t library, const esp_allocator_t *alloc,
                                  esp_i_program_t **program_out, esp_diag_t *diag)
{
    if (!d || !d->buffer_offset || device < 0 || device >= d->cluster->n_devices)
        return esp_i_fail(diag, ESP_ERR_ARGUMENT,
                          "a program needs a packed deployment and one of "
                          "its devices");
    const esp_allocator_t own = esp_i_allocator(alloc);
    esp_i_program_t *program = esp_i_alloc_array(&own, 1, sizeof *program);
    if (!program)
        return esp_i_nomem(diag);
    *program = (esp_i_program_t){.alloc = own,
                                 .deployment = d,
                                 .device = device,
                                 .wide = wide,
                                 .loss_instr = ESP_NONE,
                                 .loss_place = -1};
    esp_i_arena_init(&program->memory, &own);
    compile_t c = {.d = d, .program = program, .class_ = d->device_class[device], .diag = diag};
    c.lists = (esp_i_lists_t){.deployment = d,
                              .device = device,
                              .wide = wide,
                              .library = library,
                              .fine = true,
                              .alloc = own};
    if (c.class_ != ESP_NONE)
        program->arena_bytes = d->class_arena_bytes[c.class_] * (wide ? 2 : 1);
    const esp_status_t status = compile_all(&c);
    if (status != ESP_OK) {
        esp_i_program_destroy(program);
        return status;
    }
    *program_out = program;
    return ESP_OK;
}

void esp_i_program_destroy(esp_i_program_t *program)
{
    if (!program)
        return;
    const esp_allocator_t alloc = program->alloc;
    esp_i_arena_fini(&program->memory);
    esp_i_free(&alloc, program);
}
