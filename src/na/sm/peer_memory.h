// A peer's private memory, which the kernel reads and writes for us (process_vm_readv, writev)
// where it lets us.
//
// Proved before the first access: the peer's page names an address and the number that lies there
// (region_table.h), which only the right process has. A descriptor of the process tells before each
// copy that it still lives, so that its id is not another's by now.
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

    // False: not all of it is there (any more). Requires: reach() answered OK.
    bool read(std::uint64_t address, Bytes into) const noexcept;
    bool write(std::uint64_t address, ByteView from) const noexcept;
    bool lives() const noexcept;

  private:
    Answer ask(int socket, const Proof& proof) noexcept;

    int pid_ = 0;
    base::UniqueFd process_;
    bool asked_ = false;
    Answer answer_;
};

}  // namespace weft::na::sm
