/* SPDX-License-Identifier: Apache-2.0
 * cuda_stream.c - encodes and decodes activations on a GPU, on a stream that never waits for the
 * host.
 *
 * The frame lies in pinned host memory, from which it can be sent over a network. In this example
 * both ends share the stream; on two machines the frame would be sent in between. Exit code 77:
 * there is no GPU. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "deltawire/cuda.h"

enum { TOKENS = 256, CHANNELS = 1024, ELEMENTS = TOKENS * CHANNELS, EPOCHS = 3 };

static void check(bool ok, const char *what, const char *why)
{
    if (ok) return;
    fprintf(stderr, "%s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static void check_cuda(cudaError_t error, const char *what)
{
    check(error == cudaSuccess, what, cudaGetErrorString(error));
}

/* Stands for a layer's output, which differs a little in every epoch. */
static void make_activation(float *x, int epoch)
{
    for (int i = 0; i < ELEMENTS; i++)
        x[i] = sinf((float)i * 0.37f) + 0.05f * (float)epoch * cosf((float)i * 0.11f);
}

int main(void)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        puts("skipped: no GPU here");
        return 77;
    }
    static float host[ELEMENTS], back[ELEMENTS];
    void *x, *y, *frame;
    cudaStream_t stream;
    dw_why why = {.text = ""};
    dw_config config;
    dw_cuda *cuda;
    dw_encoder *encoder;
    dw_decoder *decoder;

    check(dw_config_parse(&config, "delta:bits=4,group=64,replies=never", &why) == DW_OK, "config",
          why.text);
    /* Use the primary context, as dw_cuda_open does. */
    check_cuda(cudaStreamCreate(&stream), "a stream");
    check(dw_cuda_open(&cuda, 0, &why) == DW_OK, "dw_cuda_open", why.text);
    dw_host on_gpu = {.struct_size = sizeof on_gpu, .cuda = cuda};
    check(dw_encoder_create(&encoder, &config, &on_gpu, &why) == DW_OK, "encoder", why.text);
    check(dw_decoder_create(&decoder, &config, &on_gpu, &why) == DW_OK, "decoder", why.text);
    check_cuda(cudaMalloc(&x, sizeof host), "memory for x");
    check_cuda(cudaMalloc(&y, sizeof host), "memory for y");
    dw_tensor on_device = dw_tensor_3d(x, DW_F32, 1, TOKENS, CHANNELS),
              received = dw_tensor_3d(y, DW_F32, 1, TOKENS, CHANNELS);
    size_t cap = dw_frame_bound(&config, &on_device);
    check_cuda(cudaHostAlloc(&frame, cap, cudaHostAllocMapped | cudaHostAllocPortable), "a frame");

    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        dw_key key = {.sample = 17};
        dw_status status;
        size_t head_len, len, reply_len;
        make_activation(host, epoch);
        check_cuda(cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, stream), "x");
        dw_encode_item out = {encoder, &key, &on_device, frame, cap, NULL};
        check(dw_encode_async(&out, 1, stream) == DW_OK, "encode", dw_encoder_why(encoder));
        /* Here the next micro-batch would be enqueued. */
        while ((status = dw_encode_finish(out.ticket, frame, cap, &head_len, &len)) == DW_PENDING) {
        }
        check(status == DW_OK, "encode", dw_encoder_why(encoder));
        dw_decode_item in = {decoder, frame, frame, head_len, len, &received, NULL};
        check(dw_decode_async(&in, 1, stream) == DW_OK, "decode", dw_decoder_why(decoder));
        while ((status = dw_decode_finish(in.ticket, NULL, 0, &reply_len)) == DW_PENDING) {
        }
        check(status == DW_OK, "decode", dw_decoder_why(decoder));
        check_cuda(cudaMemcpy(back, y, sizeof back, cudaMemcpyDeviceToHost), "y");
        double error = 0, norm = 0;
        for (int i = 0; i < ELEMENTS; i++)
            error += pow((double)back[i] - host[i], 2), norm += pow((double)host[i], 2);
        printf("epoch %d: %zu bytes became %zu, |y - x| / |x| = %.4f\n", epoch, sizeof host, len,
               sqrt(error / norm));
        check(sqrt(error / norm) < 0.02, "y", "it is not x");
    }
    dw_encoder_destroy(encoder);
    dw_decoder_destroy(decoder);
    dw_cuda_close(cuda);
    cudaFreeHost(frame);
    cudaFree(x);
    cudaFree(y);
    cudaStreamDestroy(stream);
    return EXIT_SUCCESS;
}
