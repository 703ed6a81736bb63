// Puts this process on a machine with fewer features: for a child (support/child.h), before it has
// threads. Each function returns false where this machine does not allow it (user namespaces,
// seccomp).
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>

namespace weft::test {

inline bool write_word(const char* path, const std::string& word) {
    std::ofstream file(path);
    file << word;
    file.close();
    return !file.fail();
}

// New namespaces: as root, or in a user namespace in which the process is root.
inline bool unshare_as_root(int namespaces) {
    if (::unshare(namespaces) == 0) return true;
    const std::string user = std::to_string(::geteuid()), group = std::to_string(::getegid());
    return ::unshare(namespaces | CLONE_NEWUSER) == 0 &&
           write_word("/proc/self/setgroups", "deny") &&
           write_word("/proc/self/uid_map", "0 " + user + " 1") &&
           write_word("/proc/self/gid_map", "0 " + group + " 1");
}

// Makes /proc an empty directory.
inline bool leave_proc() {
    return unshare_as_root(CLONE_NEWNS) &&
           ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("none", "/proc", "tmpfs", MS_RDONLY, nullptr) == 0;
}

inline bool install(sock_filter* rules, std::size_t count) {
    const sock_fprog program{static_cast<unsigned short>(count), rules};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// The kernel, or a profile, refuses a system call with `error`.
inline bool refuse_call(unsigned call, unsigned error) {
    sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return install(rules, std::size(rules));
}

// Refuses executable memory files, as with vm.memfd_noexec=2.
inline bool refuse_executable_memory_files() {
    constexpr unsigned noexec_seal = 8;  // MFD_NOEXEC_SEAL
    sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),  // Little-endian.
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, noexec_seal, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return install(rules, std::size(rules));
}

// Refuses sockets of a family, e.g. AF_NETLINK, as a sandbox does.
inline bool refuse_sockets(unsigned family, unsigned error) {
    sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),  // Little-endian.
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, family, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return install(rules, std::size(rules));
}

#ifdef __x86_64__
#define WEFT_TEST_TRAPPED_CALLS 1

inline int directory_sync_error = 0;

// fsync() of a directory fails with `error`, as on some file systems; fsync() of a file works.
inline bool refuse_directory_sync(int error) {
    directory_sync_error = error;
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t*, void* context) {
        auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
        const int fd = static_cast<int>(registers[REG_RDI]);
        struct stat file {};
        int result = ::fstat(fd, &file) == 0 ? 0 : -errno;
        if (result == 0 && S_ISDIR(file.st_mode)) {
            result = -directory_sync_error;
        } else if (result == 0 && ::fdatasync(fd) != 0) {
            result = -errno;
        }
        registers[REG_RAX] = result;
    };
    sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    return ::sigaction(SIGSYS, &action, nullptr) == 0 && install(rules, std::size(rules));
}
#endif

}  // namespace weft::test
