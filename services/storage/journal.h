// The journal of a store's changes, one line each, written before the change. It shows whether a
// change happened twice.
//
//   put 0123456789abcdef 1048576 9ae0daaf runs/7      transfer, bytes, CRC32C, name
//   delete runs/7
//
// Spaces, control characters and backslashes of a name are written as \x20.
//
// A line survives the end of the process, not that of the machine. A line without its effect
// belongs to a change that was interrupted or failed. On a full disk a line may lack its end; the
// next line then begins on a line of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "file.h"

namespace storage {

class Journal {
  public:
    // Appends to an existing file, on a new line when the last line was cut off. Errors: as
    // errno_status(). Blocks.
    static weft::Result<Journal> open(const std::string& path);
    // Records nothing.
    Journal() = default;

    // Thread: any, also concurrently. Both block. Errors: as errno_status(); effect none.
    weft::Status put(std::uint64_t transfer, std::uint64_t bytes, std::uint32_t crc32c,
                     std::string_view name);
    weft::Status remove(std::string_view name);

  private:
    weft::Status append(const std::string& line);

    Fd file_;
    std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
    bool is_torn_ = false;  // The last line was cut off. Guarded by mutex_.
    std::string path_;
};

}  // namespace storage
