// A file that gets its name only when it is whole: what is stored under a name is all of one
// version or all of another, whatever dies meanwhile.
//
// It is written as ".<name>.<random>.weft-tmp" (of a long name as much as there is room for) in the
// same directory, made durable (fsync), renamed
// onto its name, and the directory is made durable too. All of it blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "file.h"

namespace storage {

class UnfinishedFile {
  public:
    // `shown` names the file in errors. Errors: as errno_status().
    static weft::Result<UnfinishedFile> create(Fd directory, std::string leaf, std::string shown);
    // The same without any name until it is committed, where the file system can do that: nothing
    // is left of it even when the process is killed.
    static weft::Result<UnfinishedFile> create_nameless(Fd directory, std::string leaf,
                                                        std::string shown);

    UnfinishedFile() = default;
    UnfinishedFile(UnfinishedFile&&) = default;
    UnfinishedFile& operator=(UnfinishedFile&&) = delete;
    // Abandons it when it has not been committed.
    ~UnfinishedFile() { discard(); }

    weft::Status append(weft::ByteView bytes);
    // Stores `crc32c` with it where the file system keeps user attributes, and names it. It has the
    // mode, owner and group of a file that it replaces, as far as this process may give them.
    // Errors: as errno_status(); the file is gone then.
    weft::Status commit(std::optional<std::uint32_t> crc32c);
    void discard();

  private:
    Fd directory_;
    Fd file_;
    std::string leaf_;
    std::string temporary_;
    std::string shown_;
    bool is_nameless_ = false;
};

bool is_unfinished(std::string_view leaf);

// The checksum kept with a file; none when there is none.
std::optional<std::uint32_t> stored_crc32c(int fd);

}  // namespace storage
