// The directory that holds the objects. Names resolve below it and never leave it, whatever
// symbolic links it contains. All functions block.
#pragma once

#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>

#include "file.h"
#include "name.h"
#include "unfinished_file.h"
#include "unsynced_directories.h"

namespace storage {

struct ObjectInfo : FileStamp {
    std::optional<std::uint32_t> crc32c;
};

class Root {
  public:
    // Locks the directory against other servers and removes unfinished files of a killed server.
    // Errors, naming the path: NOT_FOUND, PERMISSION_DENIED, FAILED_PRECONDITION (not a directory,
    // read-only, in use by another server).
    static weft::Result<Root> open(const std::string& path);

    const std::string& path() const { return path_; }

    // Errors of all functions below: INVALID_ARGUMENT (the name), NOT_FOUND, PERMISSION_DENIED
    // (also for a link that leads out), else as errno_status().
    weft::Result<Fd> open_object(std::string_view name) const;
    // Makes the directories of the name.
    weft::Result<UnfinishedFile> create(std::string_view name) const;
    // Also removes the directories that become empty.
    weft::Status remove(std::string_view name) const;
    // Removes the empty directories of an object that was not created.
    void remove_empty_above(std::string_view name) const { remove_empty(split(name).directory); }
    // "" is the root. The descriptor is for reading.
    weft::Result<Fd> open_directory(const std::string& name) const;

    std::size_t removed_unfinished() const { return removed_unfinished_; }

  private:
    weft::Result<Fd> make_directories(const std::string& name) const;
    weft::Result<UnfinishedFile> try_create(std::string_view name) const;
    void remove_empty(std::string directory) const;

    std::string path_;
    Fd directory_;
    std::size_t removed_unfinished_ = 0;
    std::unique_ptr<UnsyncedDirectories> unsynced_ =
        std::make_unique<UnsyncedDirectories>(sync_directory);
};

// Errors: FAILED_PRECONDITION when it is not a regular file.
weft::Result<ObjectInfo> info_of(int fd, std::string_view name);

}  // namespace storage
