#include "base/user_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/assert.h"
#include "base/unique_fd.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace weft::base {
namespace {

constexpr std::size_t page_bytes = 4096;

// Fallback where process_vm_readv() and process_vm_writev() are refused (seccomp), and for pages
// that only a plain copy reaches, such as pages of a device.
bool copy_through_pipe(const std::byte* from, std::byte* to, std::size_t bytes) noexcept {
    int ends[2] = {-1, -1};
    UniqueFd out, in;
    {
        const ForkBlocker held;
        if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
        out = UniqueFd::close_on_fork(ends[0], held);
        in = UniqueFd::close_on_fork(ends[1], held);
    }
    while (bytes > 0) {
        const ssize_t put = ::write(in.get(), from, std::min(bytes, page_bytes));
        if (put <= 0) return false;
        const auto step = static_cast<std::size_t>(put);
        for (std::size_t done = 0; done < step;) {
            const ssize_t got = ::read(out.get(), to + done, step - done);
            if (got <= 0) return false;
            done += static_cast<std::size_t>(got);
        }
        from += step;
        to += step;
        bytes -= step;
    }
    return true;
}

bool copy(const std::byte* from, std::byte* to, std::size_t bytes, bool user_writes) noexcept {
    while (bytes > 0) {
        const iovec source{const_cast<std::byte*>(from), bytes}, target{to, bytes};
        const ssize_t copied = user_writes
                                   ? ::process_vm_writev(::getpid(), &source, 1, &target, 1, 0)
                                   : ::process_vm_readv(::getpid(), &target, 1, &source, 1, 0);
        if (copied <= 0) return copy_through_pipe(from, to, bytes);
        from += copied;
        to += copied;
        bytes -= static_cast<std::size_t>(copied);
    }
    return true;
}

bool populate(void* pages, std::size_t bytes, bool to_write) noexcept {
    const int advice = to_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    while (::madvise(pages, bytes, advice) != 0) {
        if (errno != EINTR && errno != EAGAIN) return false;
    }
    return true;
}

bool can_populate() {
    alignas(page_bytes) static std::byte probe[page_bytes];
    return populate(probe, page_bytes, true);
}

}  // namespace

bool copy_to_user(Bytes to, ByteView from) noexcept {
    WEFT_ASSERT(to.size() >= from.size());
    return copy(from.data(), to.data(), from.size(), true);
}

bool copy_from_user(ByteView from, Bytes to) noexcept {
    WEFT_ASSERT(to.size() >= from.size());
    return copy(from.data(), to.data(), from.size(), false);
}

bool is_accessible(ByteView memory, bool to_write) noexcept {
    if (!probe_once<can_populate>() || memory.empty()) return true;
    const auto first = reinterpret_cast<std::uintptr_t>(memory.data()) & ~(page_bytes - 1);
    const auto end = reinterpret_cast<std::uintptr_t>(memory.data()) + memory.size();
    const std::size_t bytes = (end - first + page_bytes - 1) & ~(page_bytes - 1);
    return populate(reinterpret_cast<void*>(first), bytes, to_write);
}

}  // namespace weft::base
