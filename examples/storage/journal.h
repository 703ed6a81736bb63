// What a store does to its objects, a line each, written before it is done: whoever asks later
// whether something happened twice looks here.
//
//   put 0123456789abcdef 1048576 9ae0daaf runs/7      transfer, bytes, CRC32C, name
//   delete runs/7
//
// Spaces, control characters and backslashes of a name are written as \x20.
//
// A line survives the end of the process, not that of the machine. What is there without its effect
// was cut off in between, or failed; of a full disk a line may lack its end, and the next one
// begins on a line of its own.
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
    // Goes on behind what is there, on a line of its own when the last one was cut off. Errors: as
    // errno_status(). Blocks.
    static weft::Result<Journal> open(const std::string& path);
    // Keeps nothing.
    Journal() = default;

    // Thread: any, also at the same time. Block. Errors: as errno_status(); effect none.
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
