// A file that gets its name only when it is whole: the bytes under a name are all of one version,
// even when a process or the machine dies meanwhile.
//
// It is written as ".<name>.<random>.weft-tmp" (a long name is cut) in the same directory, made
// durable (fsync) and renamed onto its name, and then the directory is made durable. All functions
// block.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "file.h"

namespace storage {

class UnfinishedFile {
  public:
    // `display_name` names the file in errors. Errors: as errno_status().
    static weft::Result<UnfinishedFile> create(Fd directory, std::string leaf,
                                               std::string display_name);
    // The same without a name until it is committed, where the file system supports that: no file
    // remains even when the process is killed.
    static weft::Result<UnfinishedFile> create_nameless(Fd directory, std::string leaf,
                                                        std::string display_name);

    UnfinishedFile() = default;
    UnfinishedFile(UnfinishedFile&&) = default;
    UnfinishedFile& operator=(UnfinishedFile&&) = delete;
    // Abandons the file when it has not been committed.
    ~UnfinishedFile() { discard(); }

    weft::Status append(weft::ByteView bytes);
    // Stores `crc32c` with the file where the file system supports user attributes, and names it.
    // It gets the mode, owner and group of a file that it replaces, as far as this process may set
    // them. Errors: as errno_status(); the file is removed then.
    weft::Status commit(std::optional<std::uint32_t> crc32c);
    void discard();

  private:
    Fd directory_;
    Fd file_;
    std::string leaf_;
    std::string temporary_;
    std::string display_name_;
    bool is_nameless_ = false;
};

bool is_unfinished(std::string_view leaf);

// The checksum stored with a file; empty when there is none.
std::optional<std::uint32_t> stored_crc32c(int fd);

}  // namespace storage
