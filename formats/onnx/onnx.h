/*
 * ONNX's tensors, for the backends that hold them: models (onnx.c, ot.c) and
 * lone tensors (pb.c). onnx_tensor.c reads one TensorProto, onnx_graph.c walks
 * a model for them.
 */
#ifndef TCONV_FORMATS_ONNX_ONNX_H
#define TCONV_FORMATS_ONNX_ONNX_H

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/table.h"
#include "formats/protobuf/typed.h"
#include "formats/protobuf/wire.h"
#include "formats/refused.h"

enum onnx_kind {
    ONNX_RAW,     /* bytes of a file */
    ONNX_TYPED,   /* numbers in a repeated field */
    ONNX_MEMORY,  /* bytes that are not in the file: a sparse tensor's shape */
    ONNX_INDICES, /* of a sparse tensor: [nnz, ndim] or flat in the file, [ndim, nnz] here */
};

/* Where a tensor's bytes come from; the arena's, by a tensor's cookie. */
struct onnx_place {
    enum onnx_kind kind;
    struct tc_input *input;
    uint64_t offset;
    struct typed typed;
    const unsigned char *memory;
    const struct onnx_place *stored; /* the indices as the file has them */
    const uint64_t *shape;           /* of the sparse tensor */
    unsigned rank;
    uint64_t entries;
    bool flat;
};

struct onnx {
    struct tc_reader *reader;
    struct wire_source source;
    struct typed_reader typed;
    struct onnx_place **places;
    size_t count;
    size_t capacity;
    /* Files with external data, by their location: its number is a position in `files`. */
    struct tc_input_pool pool;
    bool pooled;
    struct tc_name_map locations;
    struct tc_input **files;
    size_t nodes; /* of graphs: left out */
    struct refused refused;
    /* Tensors with values outside their type's range, and the first of them. */
    size_t wrapped;
    struct tc_text first_wrapped;
    /* The indices that were put in order last. */
    const struct onnx_place *ordered;
    unsigned char *indices;
};

/* A TensorProto, as far as it says what the tensor is. */
struct onnx_tensor {
    struct tc_text name;
    struct tc_metadata *metadata;
    enum tc_dtype dtype;
    unsigned rank;
    uint64_t shape[TC_MAX_RANK];
    uint64_t nbytes;
    struct onnx_place place;
};

/* Whether external data may lie there: below the model's folder, no way up, none
 * from the root, no drive. */
bool onnx_location_is_below(struct tc_text location);

void onnx_init(struct onnx *onnx, struct tc_reader *reader);
void onnx_release(struct onnx *onnx);

/* Parses the message; opens files with external data, and checks sizes. One that
 * is no tensor we hold (text, an unknown type) is TC_UNSUPPORTED; its name, where it
 * has one, is then known. */
bool onnx_parse_tensor(struct onnx *onnx, struct wire message, struct onnx_tensor *tensor,
                       struct tc_error *error);
/* Adds it to the table under a name, which must outlive it. */
bool onnx_add_tensor(struct onnx *onnx, struct tc_text name, const struct onnx_tensor *tensor,
                     struct tc_error *error);
/* A SparseTensorProto, as a group of three. */
bool onnx_add_sparse(struct onnx *onnx, struct wire message, struct tc_text prefix,
                     struct tc_text name, struct tc_error *error);
/* Once all are added: says what a reader would want to know, and fails where
 * nothing is left. */
bool onnx_finish(struct onnx *onnx, struct tc_error *error);
/* The next {key, value} of a map's entry. */
bool onnx_read_entry(struct onnx *onnx, struct wire message, struct tc_text *key,
                     struct tc_text *value, struct tc_error *error);

/* Everything a model holds; the whole input is one. */
bool onnx_read_model(struct onnx *onnx, struct tc_error *error);

/* Of a reader whose state is a struct onnx: for its backend. */
bool onnx_reader_read(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                      void *buffer, size_t length, struct tc_error *error);
bool onnx_reader_extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                        struct tc_extent *extent);
void onnx_reader_close(struct tc_reader *reader);

bool onnx_read(struct onnx *onnx, const struct tc_tensor *tensor, uint64_t offset, void *buffer,
               size_t length, struct tc_error *error);
bool onnx_extent(struct onnx *onnx, const struct tc_tensor *tensor, struct tc_extent *extent);

/* Probes: 0 where it is none. */
int onnx_probe_model(const struct tc_probe *probe);
int onnx_probe_tensor(const struct tc_probe *probe);

#define ONNX_DTYPES                                                                                \
    (TC_SET(TC_BOOL) | TC_SET_INTEGERS | TC_SET(TC_F16) | TC_SET(TC_BF16) | TC_SET(TC_F32) |       \
     TC_SET(TC_F64) | TC_SET(TC_C64) | TC_SET(TC_C128) | TC_SET_F8 | TC_SET(TC_U4) |               \
     TC_SET(TC_I4) | TC_SET(TC_F4) | TC_SET(TC_F6_E2M3) | TC_SET(TC_F6_E3M2))
/* ONNX's number of a dtype; 0: none. */
int onnx_data_type(enum tc_dtype dtype);

#endif
