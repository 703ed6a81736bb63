#include "na/sm/peer_memory.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>

#include "base/new_system_calls.h"

namespace weft::na::sm {
namespace {

void* at(std::uint64_t address) { return reinterpret_cast<void*>(address); }

// Calls `copy(local, remote, elements)`, with the nonce as the first element, until all is copied.
// False: a call stopped before.
template <class Copy>
bool copy_all(const Nonce& nonce, std::byte* local, std::uint64_t address, std::size_t bytes,
              Copy&& copy) noexcept {
    while (bytes > 0) {
        std::uint64_t number = nonce.number;
        const iovec here[] = {{&number, sizeof number}, {local, bytes}};
        const iovec there[] = {{at(nonce.address), sizeof number}, {at(address), bytes}};
        const ssize_t copied = copy(here, there, std::size(here));
        if (copied < 0 && errno == EINTR) continue;
        if (copied <= static_cast<ssize_t>(sizeof number) || number != nonce.number) return false;
        const auto moved = static_cast<std::size_t>(copied) - sizeof number;
        local += moved;
        address += moved;
        bytes -= moved;
    }
    return true;
}

base::UniqueFd watch_process(pid_t pid) {
    return base::UniqueFd::close_on_fork(
        [&] { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); });
}

// Whether a process can be watched and its memory reached, tried with this process. A lack of
// descriptors does not count as a failure.
bool can_reach_own() {
    if (!watch_process(::getpid()) && (errno == ENOSYS || errno == EPERM)) return false;
    int from = 1, to = 0;
    const iovec here{&to, sizeof to}, there{&from, sizeof from};
    return ::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == sizeof to;
}

}  // namespace

bool PeerMemory::is_allowed() noexcept { return base::probe_once<can_reach_own>(); }

const PeerMemory::ProbeResult& PeerMemory::probe(int socket, const Nonce& nonce) noexcept {
    if (is_probed_) return probe_result_;
    probe_result_ = probe_peer(socket, nonce);
    is_probed_ = probe_result_.code != Code::resource_exhausted;
    return probe_result_;
}

PeerMemory::ProbeResult PeerMemory::probe_peer(int socket, const Nonce& nonce) noexcept {
    constexpr Code never = Code::failed_precondition;
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) {
        return {never, "its process can't be seen from here; expose memory of Runtime::allocate()"};
    }
    pid_ = peer.pid;
    socket_ = socket;
    nonce_ = nonce;
    process_ = watch_process(peer.pid);
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
    if (!read_number(number)) {
        if (errno != EPERM) return {never, "its private memory is not at the announced address"};
        return {
            never,
            "the kernel does not let this process reach its private memory (ptrace_scope, seccomp "
            "or a container); expose memory of Runtime::allocate()"};
    }
    if (number != nonce.number)
        return {never, "its private memory does not hold the announced number"};
    return {};
}

// The socket hangs up when its process ends, and before the memory of a program that it executes is
// mapped. A process that has inherited the descriptor may keep it open.
bool PeerMemory::is_alive() const noexcept {
    pollfd ended[] = {{process_.get(), POLLIN, 0}, {socket_, 0, 0}};
    return ::poll(ended, std::size(ended), 0) == 0;
}

bool PeerMemory::read_number(std::uint64_t& number) const noexcept {
    const iovec here{&number, sizeof number}, there{at(nonce_.address), sizeof number};
    return ::process_vm_readv(pid_, &here, 1, &there, 1, 0) == sizeof number;
}

bool PeerMemory::is_there() const noexcept {
    std::uint64_t number = 0;
    return is_alive() && read_number(number) && number == nonce_.number;
}

bool PeerMemory::read(std::uint64_t address, Bytes into) const noexcept {
    return is_alive() &&
           copy_all(nonce_, into.data(), address, into.size(),
                    [&](const iovec* here, const iovec* there, std::size_t elements) {
                        return ::process_vm_readv(pid_, here, elements, there, elements, 0);
                    });
}

bool PeerMemory::write(std::uint64_t address, ByteView from) const noexcept {
    return is_alive() &&
           copy_all(nonce_, const_cast<std::byte*>(from.data()), address, from.size(),
                    [&](const iovec* here, const iovec* there, std::size_t elements) {
                        return ::process_vm_writev(pid_, here, elements, there, elements, 0);
                    });
}

}  // namespace weft::na::sm
