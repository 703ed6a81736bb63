// The store's server: serves one root directory.
//
// Guarantees: an object exists whole or not at all. Once Put has returned OK, the object survives a
// crash of the machine (as far as its disk honours fsync). Of concurrent Puts to one name the last
// commit wins whole. A Get returns one version, also while the object is being replaced.
//
// Payload takes at most 64 MiB (bounds.h) for any number of clients: they wait for each other's
// buffers, and no client takes the others' share. A client is a connection (weft::Call::client()).
// No file is touched on the context's thread.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <weft/runtime.h>

#include "bounds.h"
#include "chunk_buffers.h"
#include "client_quota.h"
#include "journal.h"
#include "root.h"
#include "settings.h"
#include "storage.weft.h"

namespace storage {

// Errors: INVALID_ARGUMENT for a call with a timeout above chunk_time_max: it would hold a buffer
// for longer than others should wait.
weft::Status validate_chunk_time(const weft::Call& call);
// The refusal of a chunk of another size or place.
weft::Status no_chunk();

struct Upload;
struct Download;

// What the stores of a server share, one for each context. Thread: any.
class SharedStore {
  public:
    // `journal`: the file of the journal; empty: none. Errors: as Root::open() and Journal::open().
    static weft::Result<std::shared_ptr<SharedStore>> open(const std::string& root,
                                                           const std::string& journal);
    SharedStore(Root in, Journal with) : root(std::move(in)), journal(std::move(with)) {}

    const Root root;
    Journal journal;
    ClientQuota uploads{"uploads", transfers_max, transfers_client_max};
    ClientQuota downloads{"downloads", transfers_max, transfers_client_max};
    ClientQuota extents{"extents", extents_max, extents_client_max};
    ClientQuota extent_bytes{"bytes of extents", extents_bytes_max, extents_client_bytes_max};

    // Calls `use(settings)`, which does not block.
    template <class Use>
    auto with_settings(Use use) {
        const std::lock_guard lock(mutex_);
        return use(settings_);
    }

  private:
    std::mutex mutex_;
    Settings settings_{wall_time()};  // Guarded by it.
};

class Store final : public StoreService {
  public:
    // A store alone. Errors: as SharedStore::open(). Lifetime: the runtime outlives the store's
    // last use.
    static weft::Result<std::unique_ptr<Store>> open(weft::Runtime& runtime,
                                                     const std::string& root,
                                                     const std::string& journal = {});
    // The store of one of the runtime's contexts.
    Store(weft::Runtime& runtime, std::shared_ptr<SharedStore> shared);
    ~Store() override;

    const Root& root() const { return shared_->root; }

    weft::Task<weft::Status> Put(weft::Call&, const PutRequest&, PutReply&) override;
    weft::Task<weft::Status> PutChunk(weft::Call&, const PutChunkRequest&, PutChunkReply&) override;
    weft::Task<weft::Status> PutCommit(weft::Call&, const PutCommitRequest&,
                                       PutCommitReply&) override;
    weft::Task<weft::Status> Get(weft::Call&, const GetRequest&, GetReply&) override;
    weft::Task<weft::Status> GetChunk(weft::Call&, const GetChunkRequest&, GetChunkReply&) override;
    weft::Task<weft::Status> OpenExtent(weft::Call&, const OpenExtentRequest&,
                                        OpenExtentReply&) override;
    weft::Status CloseExtent(weft::Call&, const CloseExtentRequest&, CloseExtentReply&) override;
    weft::Task<weft::Status> Stat(weft::Call&, const StatRequest&, Entry&) override;
    weft::Task<weft::Status> List(weft::Call&, const ListRequest&, ListReply&) override;
    weft::Task<weft::Status> Delete(weft::Call&, const DeleteRequest&, DeleteReply&) override;
    weft::Status NextVersion(weft::Call&, const NextVersionRequest&, NextVersionReply&) override;
    weft::Status SetConfig(weft::Call&, const Setting&, SetConfigReply&) override;
    weft::Status GetConfig(weft::Call&, const GetConfigRequest&, Setting&) override;

  private:
    // Leased memory; the budget is returned when no peer can access the bytes any more.
    struct Extent {
        weft::Region region;
        std::weak_ptr<void> memory;
    };

    weft::Runtime& runtime_;
    const std::shared_ptr<SharedStore> shared_;
    ChunkBuffers chunks_;
    // Keyed by the client's random number, which no other client can guess.
    std::map<std::uint64_t, std::shared_ptr<Upload>> uploads_;
    std::map<std::uint64_t, std::shared_ptr<Download>> downloads_;
    std::map<std::uint64_t, Extent> extents_;
};

}  // namespace storage
