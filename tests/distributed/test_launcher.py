import pytest

from znnpy.distributed.launcher import announced, announced_rank, announcing, first_of_host, rank_in


@pytest.mark.parametrize(
    ("environment", "ranks"),
    [
        ({}, 1),
        ({"PMI_RANK": "0", "PMI_SIZE": "4"}, 4),  # MPICH, Intel; srun --mpi=pmi2
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, 1),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "1"}, 2),
        ({"PMIX_RANK": "3"}, 0),
        ({"PMIX_RANK": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "3"}, 8),
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, 1),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}, 1),  # the batch script
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_STEP_ID": "4294967291"}, 1),  # the same
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_STEP_ID": "4294967290"}, 1),  # its shell
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "2", "SLURM_STEP_ID": "0"}, 4),
        ({"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, 1),
        ({"SLURM_NTASKS": "4", "SLURM_STEP_ID": "0"}, 1),  # nobody's task
        ({"PMI_SIZE": "many"}, 1),
        ({"RANK": "1", "WORLD_SIZE": "2"}, 2),  # torchrun
        ({"RANK": "0", "WORLD_SIZE": "1"}, 1),
        ({"RANK": "0", "WORLD_SIZE": "all"}, 1),
        ({"WORLD_SIZE": "2"}, 1),  # of a script that has not started anything yet
        ({"RANK": "0", "WORLD_SIZE": "8", "PMI_RANK": "1", "PMI_SIZE": "2"}, 2),
        ({"RANK": "0", "WORLD_SIZE": "8", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, 8),
    ],
)
def test_ranks_are_counted_as_launchers_say(environment, ranks):
    assert announced(environment) == ranks


@pytest.mark.parametrize(
    ("environment", "rank"),
    [({}, None), ({"PMI_RANK": "0"}, 0), ({"PMI_RANK": "x", "SLURM_PROCID": "2"}, 2)],
)
def test_who_is_no_rank_has_no_number(environment, rank):
    assert rank_in(environment) == rank


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({"SLURM_PROCID": "3"}, 0),  # a shell of a task, without what counts its step
        ({"PMI_RANK": "3", "PMI_SIZE": "1"}, 0),
        ({"PMIX_RANK": "3"}, 3),
        ({"RANK": "5", "WORLD_SIZE": "8", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, 5),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "2", "SLURM_STEP_ID": "0"}, 2),
        ({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "3"}, 3),
    ],
)
def test_who_is_alone_is_rank_0_and_speaks(environment, rank):
    assert announced_rank(environment) == rank
    left = {name: environment[name] for name in set(environment) - {*announcing(environment)}}
    assert (announced(left), announced_rank(left)) == (1, 0)


@pytest.mark.parametrize(
    ("environment", "first"),
    [
        ({}, False),
        ({"MPI_LOCALRANKID": "1", "SLURM_LOCALID": "0"}, False),  # mpiexec within a job
        ({"MPI_LOCALRANKID": "0", "SLURM_LOCALID": "1"}, True),
        ({"SLURM_LOCALID": "0"}, True),
    ],
)
def test_the_first_of_a_host_is_told_by_what_started_it(environment, first):
    assert first_of_host(environment) is first
