// Runs a command as on another machine: what its kernel or its container does not have fails here
// as it fails there. By seccomp, so that it holds for all that the command starts, and needs no
// rights.
//
//     as_on rhel-8|ubuntu-20.04|container|many-cpus COMMAND [ARGUMENT...]
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

struct Refusal {
    unsigned number;
    unsigned error;
};

// Since which kernel: not in 5.4, and those before not in 4.18.
const std::vector<Refusal> since_5_5 = {
    {SYS_openat2, ENOSYS},         {SYS_pidfd_getfd, ENOSYS},
    {SYS_faccessat2, ENOSYS},      {SYS_close_range, ENOSYS},
    {SYS_process_madvise, ENOSYS}, {SYS_epoll_pwait2, ENOSYS},
    {SYS_mount_setattr, ENOSYS},   {SYS_landlock_create_ruleset, ENOSYS},
    {SYS_memfd_secret, ENOSYS},    {SYS_process_mrelease, ENOSYS},
    {SYS_futex_waitv, ENOSYS}};
const std::vector<Refusal> since_4_19 = {
    {SYS_pidfd_send_signal, ENOSYS}, {SYS_pidfd_open, ENOSYS},     {SYS_clone3, ENOSYS},
    {SYS_io_uring_setup, ENOSYS},    {SYS_io_uring_enter, ENOSYS}, {SYS_io_uring_register, ENOSYS}};
// As common profiles of containers without CAP_SYS_PTRACE have it.
const std::vector<Refusal> in_container = {{SYS_process_vm_readv, EPERM},
                                           {SYS_process_vm_writev, EPERM},
                                           {SYS_ptrace, EPERM},
                                           {SYS_kcmp, EPERM},
                                           {SYS_pidfd_getfd, EPERM},
                                           {SYS_io_uring_setup, EPERM},
                                           {SYS_io_uring_enter, EPERM},
                                           {SYS_io_uring_register, EPERM},
                                           {SYS_userfaultfd, EPERM},
                                           {SYS_perf_event_open, EPERM},
                                           {SYS_bpf, EPERM},
                                           {SYS_add_key, EPERM},
                                           {SYS_keyctl, EPERM},
                                           {SYS_mbind, EPERM},
                                           {SYS_move_pages, EPERM},
                                           {SYS_set_mempolicy, EPERM},
                                           {SYS_mount, EPERM},
                                           {SYS_unshare, EPERM}};

void load(std::vector<sock_filter>& program, std::size_t offset) {
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset)));
}
void answer(std::vector<sock_filter>& program, unsigned with) {
    program.push_back(BPF_STMT(BPF_RET | BPF_K, with));
}

// Requires: the number is loaded.
void refuse(std::vector<sock_filter>& program, const std::vector<Refusal>& all) {
    for (const Refusal& one : all) {
        program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, one.number, 0, 1));
        answer(program, SECCOMP_RET_ERRNO | one.error);
    }
}

// fcntl(…, F_ADD_SEALS, …) with a seal that 4.18 does not know (F_SEAL_FUTURE_WRITE and later).
void refuse_new_seals(std::vector<sock_filter>& program) {
    constexpr unsigned known = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 5));
    load(program, offsetof(seccomp_data, args[1]));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_ADD_SEALS, 0, 3));
    load(program, offsetof(seccomp_data, args[2]));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, ~known, 0, 1));
    answer(program, SECCOMP_RET_ERRNO | EINVAL);
    load(program, offsetof(seccomp_data, nr));
}

// More than 1024 cpus are possible: a set of so many is too small.
void refuse_small_cpu_sets(std::vector<sock_filter>& program) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_getaffinity, 0, 4));
    load(program, offsetof(seccomp_data, args[1]));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 1024 / 8, 1, 0));
    answer(program, SECCOMP_RET_ERRNO | EINVAL);
    load(program, offsetof(seccomp_data, nr));
}

bool build(const char* machine, std::vector<sock_filter>& program) {
    load(program, offsetof(seccomp_data, nr));
    if (std::strcmp(machine, "rhel-8") == 0) {
        refuse(program, since_4_19);
        refuse(program, since_5_5);
        refuse_new_seals(program);
    } else if (std::strcmp(machine, "ubuntu-20.04") == 0) {
        refuse(program, since_5_5);
    } else if (std::strcmp(machine, "container") == 0) {
        refuse(program, in_container);
    } else if (std::strcmp(machine, "many-cpus") == 0) {
        refuse_small_cpu_sets(program);
    } else {
        return false;
    }
    answer(program, SECCOMP_RET_ALLOW);
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<sock_filter> program;
    if (argc < 3 || !build(argv[1], program)) {
        std::fprintf(
            stderr, "usage: as_on rhel-8|ubuntu-20.04|container|many-cpus COMMAND [ARGUMENT...]\n");
        return 64;
    }
    const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        std::perror("as_on: no seccomp here");
        return 77;
    }
    ::execvp(argv[2], argv + 2);
    std::fprintf(stderr, "as_on: %s: %s\n", argv[2], std::strerror(errno));
    return 127;
}
