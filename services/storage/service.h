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

class Store final : public StoreService {
  public:
    // `journal`: the file of the journal; empty: none. Errors: as Root::open() and Journal::open().
    // Lifetime: the runtime outlives the store's last use.
    static weft::Result<std::unique_ptr<Store>> open(weft::Runtime& runtime,
                                                     const std::string& root,
                                                     const std::string& journal = {});
    ~Store() override;

    const Root& root() const { return root_; }

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

    Store(weft::Runtime& runtime, Root root, Journal journal);

    weft::Runtime& runtime_;
    const Root root_;
    Journal journal_;
    ChunkBuffers chunks_;
    // Keyed by the client's random number, which no other client can guess.
    std::map<std::uint64_t, std::shared_ptr<Upload>> uploads_;
    std::map<std::uint64_t, std::shared_ptr<Download>> downloads_;
    std::map<std::uint64_t, Extent> extents_;
    ClientQuota upload_quota_{"uploads", transfers_max, transfers_client_max};
    ClientQuota download_quota_{"downloads", transfers_max, transfers_client_max};
    ClientQuota extent_quota_{"extents", extents_max, extents_client_max};
    ClientQuota extent_byte_quota_{"bytes of extents", extents_bytes_max, extents_client_bytes_max};
    Settings settings_{wall_time()};
};

}  // namespace storage
