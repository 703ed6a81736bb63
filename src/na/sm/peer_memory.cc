#include "na/sm/peer_memory.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace weft::na::sm {
namespace {

// Calls `copy(local, remote)` until all is copied. False: it stopped before.
template <class Copy>
bool copy_all(std::byte* local, std::uint64_t address, std::size_t bytes, Copy&& copy) noexcept {
    while (bytes > 0) {
        const iovec here{local, bytes};
        const iovec there{reinterpret_cast<void*>(address), bytes};
        const ssize_t copied = copy(here, there);
        if (copied < 0 && errno == EINTR) continue;
        if (copied <= 0) return false;
        local += copied;
        address += static_cast<std::uint64_t>(copied);
        bytes -= static_cast<std::size_t>(copied);
    }
    return true;
}

bool can_read_own() {
    int from = 1, to = 0;
    const iovec here{&to, sizeof to}, there{&from, sizeof from};
    return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == sizeof to;
}

}  // namespace

bool PeerMemory::is_allowed() noexcept { return base::found_once<can_read_own>(); }

const PeerMemory::Answer& PeerMemory::reach(int socket, const Proof& proof) noexcept {
    if (asked_) return answer_;
    answer_ = ask(socket, proof);
    asked_ = answer_.code != Code::resource_exhausted;
    return answer_;
}

PeerMemory::Answer PeerMemory::ask(int socket, const Proof& proof) noexcept {
    constexpr Code never = Code::failed_precondition;
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) {
        return {never, "its process can't be seen from here; expose memory of Runtime::allocate()"};
    }
    pid_ = peer.pid;
    process_ = base::UniqueFd::closed_in_children(
        [&] { return static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)); });
    if (!process_) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
            return {Code::resource_exhausted,
                    "no file descriptor left to watch its process with (ulimit -n)"};
        }
        return {never,
                "its process can't be watched (Linux before 5.3?); expose memory of "
                "Runtime::allocate()"};
    }
    std::uint64_t number = 0;
    if (!read(proof.address, {reinterpret_cast<std::byte*>(&number), sizeof number})) {
        if (errno != EPERM) return {never, "its private memory is not where it says"};
        return {never,
                "the kernel does not let us reach its private memory (ptrace_scope, seccomp "
                "or a container); expose memory of Runtime::allocate()"};
    }
    if (number != proof.number) return {never, "its private memory is not what it says"};
    return {};
}

bool PeerMemory::lives() const noexcept {
    pollfd ended{process_.get(), POLLIN, 0};
    return ::poll(&ended, 1, 0) == 0;
}

bool PeerMemory::read(std::uint64_t address, Bytes into) const noexcept {
    return lives() &&
           copy_all(into.data(), address, into.size(), [&](const iovec& here, const iovec& there) {
               return ::process_vm_readv(pid_, &here, 1, &there, 1, 0);
           });
}

bool PeerMemory::write(std::uint64_t address, ByteView from) const noexcept {
    return lives() && copy_all(const_cast<std::byte*>(from.data()), address, from.size(),
                               [&](const iovec& here, const iovec& there) {
                                   return ::process_vm_writev(pid_, &here, 1, &there, 1, 0);
                               });
}

}  // namespace weft::na::sm
