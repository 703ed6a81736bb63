#include "na/memory_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <string>
#include <system_error>

// In the kernel since 5.1; glibc 2.36 has it only in <linux/fcntl.h>, which clashes with <fcntl.h>.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace weft::na {

Mapping& Mapping::operator=(Mapping&& other) noexcept {
    if (this != &other) {
        if (data_) ::munmap(data_, bytes_);
        data_ = std::exchange(other.data_, nullptr);
        bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
}

Mapping::~Mapping() {
    if (data_) ::munmap(data_, bytes_);
}

std::string errno_text(std::string what) {
    return std::move(what) + ": " + std::generic_category().message(errno);
}

std::string mapping_text(std::string what) {
    const bool is_locked = errno == EAGAIN;
    std::string text = errno_text(std::move(what));
    if (is_locked) {
        text +=
            "; this process locks its memory (mlockall), and `ulimit -l` (LimitMEMLOCK of a "
            "service) leaves no room: raise it, or take a smaller RuntimeOptions::arena_bytes_max";
    }
    return text;
}

// A kernel from 6.3 on may be configured to make only files that can't be executed
// (vm.memfd_noexec=2). Older kernels lack the flag for it, so the flag is tried only after EACCES.
static int make_file(const char* name) {
    constexpr unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    const int made = ::memfd_create(name, flags);
    return made < 0 && errno == EACCES ? ::memfd_create(name, flags | MFD_NOEXEC_SEAL) : made;
}

Result<base::UniqueFd> make_memory_file(const char* name, std::size_t bytes) {
    // Beyond this limit ftruncate() would kill the process by SIGXFSZ.
    rlimit file_size{};
    if (::getrlimit(RLIMIT_FSIZE, &file_size) == 0 && bytes > file_size.rlim_cur) {
        return fail(Code::resource_exhausted, std::string(name) + ": " + std::to_string(bytes) +
                                                  " bytes exceed the file size limit (ulimit -f)");
    }
    auto fd = base::UniqueFd::close_on_fork([&] { return make_file(name); });
    if (!fd)
        return fail(Code::resource_exhausted, errno_text(std::string(name) + ": memfd_create"));
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
        return fail(Code::resource_exhausted,
                    errno_text(std::string(name) + ": growing to " + std::to_string(bytes)));
    }
    return fd;
}

Status seal(base::UniqueFd& fd, FutureWrite future_write) {
    const bool is_forbidden = future_write == FutureWrite::forbidden;
    constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    const int seals = is_forbidden ? size_seals | F_SEAL_FUTURE_WRITE : size_seals;
    if (::fcntl(fd.get(), F_ADD_SEALS, seals) == 0) return {};
    if (!is_forbidden || errno != EINVAL || ::fcntl(fd.get(), F_ADD_SEALS, size_seals) != 0) {
        return fail(Code::unavailable, errno_text("sealing shared memory"));
    }
    // A kernel before 5.1: a descriptor that only reads takes the place of `fd`.
    const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
    auto reader =
        base::UniqueFd::close_on_fork([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
    if (!reader)
        return fail(
            Code::unavailable,
            errno_text("opening shared memory to read, for which a kernel before 5.1 needs /proc"));
    fd = std::move(reader);
    return {};
}

static Status mapping_failed(std::size_t bytes) {
    return fail(Code::resource_exhausted,
                mapping_text("mapping " + std::to_string(bytes) + " bytes of shared memory"));
}

Result<Mapping> map_file(int fd, std::size_t bytes, Writable writable) {
    const int protection = writable == Writable::yes ? PROT_READ | PROT_WRITE : PROT_READ;
    void* at = ::mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED) return mapping_failed(bytes);
    return Mapping(static_cast<std::byte*>(at), bytes);
}

// mlockall(MCL_FUTURE) locks a new mapping whole, and touches all of it unless it is PROT_NONE.
// From now on pages are locked when they are touched, or not at all if the system refuses that.
static void lock_when_touched(void* at, std::size_t bytes) {
    const bool is_locked = ::madvise(at, bytes, MADV_DONTNEED) != 0 && errno == EINVAL;
    if (is_locked && ::mlock2(at, bytes, MLOCK_ONFAULT) != 0) ::munlock(at, bytes);
}

Status map_sparse_at(void* at, int fd, std::size_t bytes) {
    constexpr int flags = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
    if (::mmap(at, bytes, PROT_NONE, flags, fd, 0) == MAP_FAILED) return mapping_failed(bytes);
    lock_when_touched(at, bytes);
    // A core dump reads a mapping whole, which would allocate every page of the file.
    (void)::madvise(at, bytes, MADV_DONTDUMP);
    if (::mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) return mapping_failed(bytes);
    return {};
}

Result<Mapping> map_sparse(int fd, std::size_t bytes) {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* at = ::mmap(nullptr, bytes, PROT_NONE, flags, -1, 0);
    if (at == MAP_FAILED) return mapping_failed(bytes);
    Mapping mapping(static_cast<std::byte*>(at), bytes);
    if (Status status = map_sparse_at(at, fd, bytes); !status.ok()) return status;
    return mapping;
}

Result<std::size_t> validate_memory_file(int fd, const char* what, std::size_t bytes_min,
                                         std::size_t bytes_max) {
    const std::string name = std::string("the peer's ") + what;
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0) return fail(Code::data_loss, name + " is not a memory file");
    if ((seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) {
        return fail(Code::data_loss, name + " can still be truncated (size not sealed)");
    }
    // Huge page files raise SIGBUS when their pool is empty, also with a sealed size.
    struct statfs system {};
    if (::fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) {
        return fail(Code::data_loss, name + " does not lie in ordinary memory");
    }
    struct stat file {};
    if (::fstat(fd, &file) != 0 || file.st_size < 0) {
        return fail(Code::data_loss, name + " has no size");
    }
    const auto bytes = static_cast<std::size_t>(file.st_size);
    if (bytes < bytes_min || bytes > bytes_max) {
        return fail(Code::data_loss, name + " has " + std::to_string(bytes) + " bytes, expected " +
                                         std::to_string(bytes_min) + " to " +
                                         std::to_string(bytes_max));
    }
    return bytes;
}

}  // namespace weft::na
