/* The processes of a run. */
#include "espalier/train.h"
#include "exec/comm.h"

#include <stdio.h>
#include <string.h>

struct esp_launch {
    esp_allocator_t alloc;
    esp_i_comm_t *comm; /* NULL: alone */
};

int esp_launch_by_mpi(void)
{
    return esp_i_comm_mpi_started();
}

esp_status_t esp_launch_create(const esp_allocator_t *alloc, esp_launch_t **launch_out,
                               esp_diag_t *diag)
{
    esp_allocator_t from = esp_i_allocator(alloc);
    esp_launch_t *launch = esp_i_alloc_array(&from, 1, sizeof *launch);
    if (launch == NULL)
        return esp_i_nomem(diag);
    launch->alloc = from;
    if (esp_i_comm_mpi_started()) {
        esp_status_t status = esp_i_comm_mpi_create(&launch->alloc, &launch->comm, diag);
        if (status != ESP_OK) {
            esp_i_free(&from, launch);
            return status;
        }
    }
    *launch_out = launch;
    return ESP_OK;
}

void esp_launch_destroy(esp_launch_t *launch)
{
    if (launch == NULL)
        return;
    esp_allocator_t alloc = launch->alloc;
    if (launch->comm != NULL)
        launch->comm->type->destroy(launch->comm);
    esp_i_free(&alloc, launch);
}

int32_t esp_launch_rank(const esp_launch_t *launch)
{
    return launch != NULL && launch->comm != NULL ? launch->comm->rank : 0;
}

int32_t esp_launch_ranks(const esp_launch_t *launch)
{
    return launch != NULL && launch->comm != NULL ? launch->comm->n_ranks : 1;
}

esp_status_t esp_launch_share(esp_launch_t *launch, void *data, int64_t bytes, esp_diag_t *diag)
{
    if (esp_launch_ranks(launch) == 1 || bytes == 0)
        return ESP_OK;
    return esp_i_comm_broadcast(launch->comm, data, bytes, diag);
}

/* How one rank fares; a plain block of bytes that travels. */
typedef struct state {
    int32_t rank;
    esp_status_t status;
    esp_diag_t diag;
} state_t;

/* On rank 0: the first bad state. */
static esp_status_t collect(esp_launch_t *launch, state_t *state, esp_diag_t *diag)
{
    for (int32_t r = 1; r < launch->comm->n_ranks; r++) {
        state_t other;
        ESP_TRY(esp_i_comm_receive(launch->comm, r, ESP_I_TAG_CONTROL, &other, sizeof other, diag));
        if (state->status == ESP_OK)
            *state = other;
    }
    return ESP_OK;
}

esp_status_t esp_launch_agree(esp_launch_t *launch, esp_status_t status, esp_diag_t *diag)
{
    state_t state = {.rank = esp_launch_rank(launch), .status = status};
    if (esp_launch_ranks(launch) == 1)
        return status;
    if (status != ESP_OK && diag != NULL)
        state.diag = *diag;
    if (state.rank == 0)
        ESP_TRY(collect(launch, &state, diag));
    else
        ESP_TRY(esp_i_comm_send(launch->comm, 0, ESP_I_TAG_CONTROL, &state, sizeof state, diag));
    ESP_TRY(esp_i_comm_broadcast(launch->comm, &state, sizeof state, diag));
    if (state.status == ESP_OK || diag == NULL)
        return state.status;
    *diag = state.diag;
    if (state.rank > 0) /* what rank 0 meets is what a single process would have met */
        (void)snprintf(diag->text, sizeof diag->text, "rank %d: %.480s", (int)state.rank,
                       state.diag.text);
    return state.status;
}
