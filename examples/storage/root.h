// The directory that holds the objects. Names are resolved below it and never leave it, whatever
// symbolic links lie there. All of it blocks.
#pragma once

#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>

#include "file.h"
#include "fresh_directories.h"
#include "name.h"
#include "unfinished_file.h"

namespace storage {

struct ObjectInfo : FileStamp {
    std::optional<std::uint32_t> crc32c;
};

class Root {
  public:
    // Locks the directory against other servers and removes what a killed one left unfinished.
    // Errors, naming the path: NOT_FOUND, PERMISSION_DENIED, FAILED_PRECONDITION (no directory,
    // read-only, another server has it).
    static weft::Result<Root> open(const std::string& path);

    const std::string& path() const { return path_; }

    // For the errors of all below: INVALID_ARGUMENT (the name), NOT_FOUND, PERMISSION_DENIED (also
    // for a link that leads out), else as errno_status().
    weft::Result<Fd> open_object(std::string_view name) const;
    // Makes the directories that it needs.
    weft::Result<UnfinishedFile> create(std::string_view name) const;
    // Removes the directories that this leaves empty, too.
    weft::Status remove(std::string_view name) const;
    // The directories that were made for an object which did not come to be go, unless they hold
    // others.
    void remove_empty_above(std::string_view name) const { remove_empty(split(name).directory); }
    // "" is the root. The descriptor reads.
    weft::Result<Fd> open_directory(const std::string& name) const;

    std::size_t removed_unfinished() const { return removed_unfinished_; }

  private:
    weft::Result<Fd> make_directories(const std::string& name) const;
    weft::Result<UnfinishedFile> try_create(std::string_view name) const;
    void remove_empty(std::string directory) const;

    std::string path_;
    Fd directory_;
    std::size_t removed_unfinished_ = 0;
    std::unique_ptr<FreshDirectories> fresh_ = std::make_unique<FreshDirectories>(sync_directory);
};

// Errors: FAILED_PRECONDITION when it is no regular file.
weft::Result<ObjectInfo> info_of(int fd, std::string_view name);

}  // namespace storage
