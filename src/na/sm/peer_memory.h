// A peer's private memory, which the kernel reads and writes for this process (process_vm_readv,
// writev) where it permits that.
//
// Each copy begins with a nonce, in the same system call: a random number at an address that the
// peer's table names (region_table.h), where hardly another program has a mapping, and none this
// number. A process keeps its id
// when it executes a program, and ids are reused. The kernel copies the elements of a call in
// order, all from or to one address space, and stops at the first that is not mapped. So nothing is
// copied from or to a program that took the peer's place. Before each copy the process and the
// connection's socket are checked, too.
#pragma once

#include <cstdint>
#include <utility>

#include <weft/bytes.h>
#include <weft/status.h>

#include "base/unique_fd.h"

namespace weft::na::sm {

struct Nonce {
    std::uint64_t address = 0;
    std::uint64_t number = 0;
};

class PeerMemory {
  public:
    // Whether this process may use the system calls at all; some containers refuse them.
    static bool is_allowed() noexcept;

    // Probes the peer once and keeps the result, unless descriptors were lacking: then the next
    // call probes again. `socket`: of the connection.
    struct ProbeResult {
        Code code = Code::ok;  // RESOURCE_EXHAUSTED for lack of descriptors.
        const char* why = nullptr;
    };
    const ProbeResult& probe(int socket, const Nonce& nonce) noexcept;

    // False: not all of the memory is mapped (any more). A put writes the nonce again.
    // Requires: probe() returned OK.
    bool read(std::uint64_t address, Bytes into) const noexcept;
    bool write(std::uint64_t address, ByteView from) const noexcept;
    // False: the process ended or executes another program, or the connection has ended.
    bool is_there() const noexcept;

  private:
    ProbeResult probe_peer(int socket, const Nonce& nonce) noexcept;
    bool is_alive() const noexcept;
    bool read_number(std::uint64_t& number) const noexcept;

    int pid_ = 0;
    int socket_ = -1;
    Nonce nonce_;
    base::UniqueFd process_;
    bool is_probed_ = false;
    ProbeResult probe_result_;
};

}  // namespace weft::na::sm
