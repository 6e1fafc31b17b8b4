/* Random traffic under MPI: rank 0 prints how it went. */
#include "exec_traffic.h"

#include <stdio.h>

static bool run(esp_i_comm_t *comm, esp_diag_t *diag)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        comm->part_bytes = seed % 2 == 0 ? comm->part_bytes : 700; /* long messages in parts */
        if (!traffic_messages(comm, seed, diag) || !traffic_collective(comm, seed, diag))
            return false;
    }
    return true;
}

int main(void)
{
    esp_i_comm_t *comm;
    esp_diag_t diag = {0};
    const bool started = esp_i_comm_mpi_started();
    bool fine = esp_i_comm_mpi_create(NULL, &comm, &diag) == ESP_OK;
    if (!fine) {
        printf("%s\n", diag.text);
        return 1;
    }
    const int32_t rank = comm->rank, n_ranks = comm->n_ranks;
    fine = started && run(comm, &diag);
    if (!fine)
        printf("rank %d: %s\n", rank, diag.text);
    else if (rank == 0)
        printf("traffic among %d ranks\n", n_ranks);
    comm->type->destroy(comm);
    return fine ? 0 : 1;
}
