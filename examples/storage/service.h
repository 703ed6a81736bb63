// The store's server: one root directory, served.
//
// What it promises: an object is there whole or not at all; once Put answered OK it survives a
// crash of the machine (as far as its disk keeps what fsync says); of Puts to one name at the same
// time the last to commit wins whole; a Get gives one version, also while it is being replaced.
// Payload takes at most 64 MiB (bounds.h), however many clients come: they wait for each other's
// buffers, and none keeps the others from what it has a share of. A client is a connection
// (weft::Call::client()). No file is touched on the context's thread.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include <weft/runtime.h>

#include "bounds.h"
#include "chunk_buffers.h"
#include "journal.h"
#include "root.h"
#include "settings.h"
#include "shares.h"
#include "storage.weft.h"

namespace storage {

// Errors: INVALID_ARGUMENT for a client that would keep a buffer longer than others should wait.
weft::Status judge_chunk_time(const weft::Call& call);

struct Upload;
struct Download;

class Store final : public StoreService {
  public:
    // `journal`: the file for the journal's lines; empty: none. Errors: as Root::open() and
    // Journal::open(). Lifetime: the runtime outlives the store's last use.
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
    // Memory lent out; the budget comes back when no peer can reach the bytes any more.
    struct Extent {
        weft::Region region;
        std::weak_ptr<void> memory;
    };

    Store(weft::Runtime& runtime, Root root, Journal journal);

    weft::Runtime& runtime_;
    const Root root_;
    Journal journal_;
    ChunkBuffers chunks_;
    // Each by the client's random number: no other client can guess it.
    std::map<std::uint64_t, std::shared_ptr<Upload>> uploads_;
    std::map<std::uint64_t, std::shared_ptr<Download>> downloads_;
    std::map<std::uint64_t, Extent> extents_;
    Shares upload_shares_{"uploads", transfers_max, transfers_client_max};
    Shares download_shares_{"downloads", transfers_max, transfers_client_max};
    Shares extent_shares_{"extents", extents_max, extents_client_max};
    Shares extent_byte_shares_{"bytes of extents", extents_bytes_max, extents_client_bytes_max};
    Settings settings_{wall_time()};
};

}  // namespace storage
