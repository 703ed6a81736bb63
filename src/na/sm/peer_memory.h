// A peer's private memory, which the kernel reads and writes for us (process_vm_readv, writev)
// where it lets us.
//
// Each copy begins with a proof, in the same system call: a number at an address that the peer's
// table names (region_table.h), on a page that only this peer has mapped. A process keeps its id
// when it executes a program, and ids are used again; the kernel copies the elements of a call in
// order, all from or to one address space, and stops at the first that is not there. So nothing is
// copied from or to a program that took the peer's place. Before each copy the process and the
// connection's socket are looked at, too.
#pragma once

#include <cstdint>
#include <utility>

#include <weft/bytes.h>
#include <weft/status.h>

#include "base/unique_fd.h"

namespace weft::na::sm {

struct Proof {
    std::uint64_t address = 0;
    std::uint64_t number = 0;
};

class PeerMemory {
  public:
    // Whether this process may use the system calls at all; some containers refuse them.
    static bool is_allowed() noexcept;

    // Asks once; want of descriptors is no answer, and asked about again. `socket`: of the
    // connection.
    struct Answer {
        Code code = Code::ok;  // RESOURCE_EXHAUSTED for want of descriptors.
        const char* why = nullptr;
    };
    const Answer& reach(int socket, const Proof& proof) noexcept;

    // False: not all of it is there (any more). A put writes the proof's number again.
    // Requires: reach() answered OK.
    bool read(std::uint64_t address, Bytes into) const noexcept;
    bool write(std::uint64_t address, ByteView from) const noexcept;
    // False: the process ended or executes another program, or the connection is over.
    bool is_there() const noexcept;

  private:
    Answer ask(int socket, const Proof& proof) noexcept;
    bool lives() const noexcept;
    bool read_number(std::uint64_t& number) const noexcept;

    int pid_ = 0;
    int socket_ = -1;
    Proof proof_;
    base::UniqueFd process_;
    bool asked_ = false;
    Answer answer_;
};

}  // namespace weft::na::sm
