/* SPDX-License-Identifier: Apache-2.0
 * train_options.c - the table of options, and the examples of --help. */
#include "train_options.h"

/* argp sorts the options of a group by name, so each text must be understood alone. */
const struct argp_option dw_train_options[] = {
    {0, 0, 0, 0, "Place of this process among all ranks:", 1},
    {"local", LOCAL, "N", 0,
     "Start all N ranks as processes of this machine; replaces --rank, --listen, --connect and "
     "--replica-listen",
     1},
    {"link", LINK, "URI", 0,
     "With --local: the transport between the ranks (default: tcp://127.0.0.1:0; port 0 picks a "
     "free port). Without --local: how ranks that a launcher started find each other: mpi:// "
     "(mpirun), env:// (torchrun or srun; reads MASTER_ADDR, MASTER_PORT and the launcher's rank), "
     "tcp://HOST:PORT (where rank 0 is to listen) or file:///PATH (which all ranks can reach)",
     1},
    {"host", HOST, "ADDRESS", 0,
     "With --link tcp://, env:// or file://: the name or address of this machine for the other "
     "ranks (default: determined automatically; if only a name is known that is a loopback address "
     "here, as 127.0.1.1 is on Debian, this rank listens on all addresses)",
     1},
    {"rank", RANK, "R", 0,
     "Run rank R, counted from 0: stage R % K of replica R / K (rounded down); needs --stages", 1},
    {"stages", STAGES, "K", 0,
     "Number of stages in the pipeline (default with --local or a launcher: all ranks, divided by "
     "--replicas)",
     1},
    {"replicas", REPLICAS, "D", 0,
     "Number of replicas of the pipeline, which train on different samples and average their "
     "weight gradients; there are K times D ranks (default: 1)",
     1},
    {"listen", LISTEN, "URI", 0, "Address on which to listen for rank R + 1", 1},
    {"connect", CONNECT, "URI", 0, "Address on which rank R - 1 listens", 1},
    {"replica-listen", REPLICA_LISTEN, "URI", 0,
     "Address of this machine, with port 0, on which the same stage of other replicas can reach "
     "this rank; only with --rank and --replicas or --tied",
     1},
    {"open-timeout", OPEN_TIMEOUT, "SECONDS", 0,
     "Time in which the neighbouring ranks must connect at the start (default: 60)", 1},
    {"peer-timeout", PEER_TIMEOUT, "SECONDS", 0,
     "Time after which a neighbour that should send data and does not counts as lost (default: 60)",
     1},
    {"threads", THREADS, "N", 0, "Threads for compression and decompression (default: 1)", 1},
    {"state", STATE, "file:PATH,cache=BYTES", 0,
     "Keep the last reconstruction of every sample in a file, and as many bytes of it in memory; "
     "rank R adds .R to the path (default: all in memory)",
     1},

    {0, 0, 0, 0, "Security of TCP connections (see docs/deploy.md):", 2},
    {"group-key", GROUP_KEY, "FILE", 0,
     "Secret key of the run, as created by `deltawire keygen`; the same at all ranks (default: the "
     "file that the environment variable DELTAWIRE_GROUP_KEY_FILE names)",
     2},
    {"certificate", CERTIFICATE, "FILE", 0,
     "Instead of --group-key: certificate of this rank, in PEM format, with the URI "
     "deltawire:rank/R in it; needs --key and --ca",
     2},
    {"key", KEY, "FILE", 0, "Private key that belongs to --certificate", 2},
    {"ca", CA, "FILE", 0, "Certificate of the authority that signed the certificates of all ranks",
     2},
    {"insecure-plaintext", INSECURE, 0, 0,
     "Connect to other machines without encryption and authentication: whoever can reach the "
     "network can read and change the data, and take part. Without this option and without keys, "
     "TCP connections are limited to the loopback interface",
     2},

    {0, 0, 0, 0, "Compression (the same at all ranks):", 3},
    {"forward", FORWARD, "CODEC", 0,
     "Codec for activations, which go from rank R to R + 1 (default: raw:f32). Boundary B, between "
     "stages B and B + 1, can have a codec of its own, after its number and a colon: "
     "delta:bits=4,1:topk:keep=0.1,2:raw:f32. "
     "The first entry may have no number, and is for all boundaries without an entry",
     3},
    {"backward", BACKWARD, "CODEC", 0,
     "Codec for gradients, which go from rank R + 1 to R (default: raw:f32). A codec for every "
     "boundary can be given as for --forward",
     3},
    {"gradient", GRADIENT, "CODEC", 0,
     "Codec for weight gradients, which replicas average, such as direct:bits=4; only with "
     "--replicas (default: raw:f32)",
     3},
    {"hops", HOPS, "1|2", 0,
     "With --replicas: 2: every replica adds up a part of the gradients and sends the result, so "
     "it is compressed a second time; 1: all send all to all, which takes as many bytes with two "
     "replicas and more with several (default: 2)",
     3},

    {0, 0, 0, 0, "Model (the same at all ranks):", 4},
    {"layers", LAYERS, "L", 0, "Number of transformer blocks (default: 4)", 4},
    {"channels", CHANNELS, "C", 0, "Width of the model (default: 128)", 4},
    {"heads", HEADS, "H", 0, "Attention heads of a block (default: 4)", 4},
    {"context", CONTEXT, "T", 0, "Length of a sample in tokens, which are bytes (default: 128)", 4},

    {"bottleneck", BOTTLENECK, "R", 0,
     "Send R channels between stages in place of C: a matrix that is trained with the model makes "
     "them of the C channels before sending, and another one makes C channels of them (default: no "
     "bottleneck)",
     4},
    {"tied", TIED, 0, 0,
     "Use one matrix as the embedding of tokens and to score tokens. The first and the last stage "
     "have a copy each, whose gradients are added up, in one operation with the average over "
     "--replicas. With --rank and three or more stages, these two ranks need --replica-listen",
     4},

    {0, 0, 0, 0, "Data (the same at all ranks):", 5},
    {"text", TEXT, "FILE", 0, "Train on the bytes of FILE (required)", 5},
    {"text-offset", TEXT_OFFSET, "BYTES", 0, "Skip the first BYTES of the text (default: 0)", 5},
    {"samples", SAMPLES, "N", 0,
     "Train on N samples, each of T + 1 bytes with T from --context (default: as many as the text "
     "has). Each of D replicas keeps N / D of them for all epochs",
     5},
    {"held-out", HELD_OUT, "N", 0,
     "Evaluate on the N samples that follow the training samples in the text (default: 0)", 5},

    {0, 0, 0, 0, "Training (the same at all ranks):", 6},
    {"batch", BATCH, "N", 0, "Samples in a step of each replica (default: 16)", 6},
    {"micro-batches", MICRO_BATCHES, "M", 0,
     "Parts of a batch, which pass through the pipeline one after another; must divide the batch "
     "(default: 4, or 1 if 4 does not)",
     6},
    {"schedule", SCHEDULE, "NAME", 0,
     "Order of the micro-batches: gpipe, in which a stage may hold the activations of all of them; "
     "or 1f1b, in which stage R of K holds at most K - R, but waits more often. Both give the same "
     "sums (default: gpipe)",
     6},
    {"slices", SLICES, "S", 0,
     "Parts of nearly equal length into which the tokens of a micro-batch are cut; each passes "
     "through the pipeline on its own, and is compressed on its own, so stages wait less if there "
     "are few micro-batches. At most as many as tokens in a sample (default: 1)",
     6},
    {"repeat", REPEAT, "N", 0,
     "Train on every batch in N consecutive steps. From 2 on, codecs such as delta keep the state "
     "of "
     "one batch and not of every sample, for data whose samples never come again (default: 1)",
     6},
    {"epochs", EPOCHS, "N", 0,
     "Pass over the samples N times, with --repeat R in R steps per batch (default: 1)", 6},
    {"steps", STEPS, "N", 0, "Train for N steps; replaces --epochs", 6},
    {"lr", LR, "X", 0,
     "Peak of the learning rate, which falls linearly to 0 after the warm-up (default: 1e-3)", 6},
    {"warmup", WARMUP, "N", 0,
     "Steps in which the learning rate rises linearly to its peak (default: 0)", 6},
    {"local-steps", LOCAL_STEPS, "N", 0,
     "With --replicas: every replica takes N steps on its own, then the replicas average how far "
     "their parameters have moved, in place of gradients (default: 1, which averages gradients)",
     6},
    {"outer-lr", OUTER_LR, "X", 0,
     "With --local-steps: learning rate of the step along the average (default: 0.7)", 6},
    {"outer-momentum", OUTER_MOMENTUM, "X", 0,
     "With --local-steps: its Nesterov momentum; 0 switches it off (default: 0.9)", 6},
    {"beta1", BETA1, "X", 0, "AdamW: decay rate of the average of the gradient (default: 0.9)", 6},
    {"beta2", BETA2, "X", 0, "AdamW: decay rate of the average of its square (default: 0.95)", 6},
    {"weight-decay", WEIGHT_DECAY, "X", 0,
     "AdamW: weight decay of the matrices; 0 switches it off (default: 0.1)", 6},
    {"clip", CLIP, "X", 0,
     "Largest norm of the gradient over all ranks; 0 switches clipping off (default: 1)", 6},
    {"seed", SEED, "N", 0,
     "Seed of the initial parameters and of the order of samples (default: 0)", 6},
    {"init", INIT, "DIR", 0, "Start from the parameters of the checkpoint in DIR", 6},
    {"resume", RESUME, "DIR", 0,
     "Continue the run that saved the checkpoint in DIR, with the same bits if it has the same "
     "settings; what codecs kept for others is left out, with a warning",
     6},

    {0, 0, 0, 0, "Output:", 7},
    {"save", SAVE, "DIR", 0,
     "Save a checkpoint to DIR at the end: parameters, optimizer, and what the codecs keep", 7},
    {"save-every", SAVE_EVERY, "N", 0,
     "With --save: also save a checkpoint every N steps (the same at all ranks)", 7},
    {"eval-every", EVAL_EVERY, "N", 0,
     "Compute the held-out loss every N steps and at the end (the same at all ranks; default: "
     "every "
     "epoch)",
     7},
    {"plain-eval", PLAIN_EVAL, 0, 0,
     "With every evaluation also compute the held-out loss without codecs, which takes as long as "
     "sending the activations as floats (the same at all ranks)",
     7},
    {"check-every", CHECK_EVERY, "N", 0,
     "Compare the parameters of all replicas every N steps and at the end; if they differ, the run "
     "ends with an error (the same at all ranks; default: with every evaluation)",
     7},
    {"log", LOG, "FILE", 0,
     "Write JSON Lines to FILE: a line per step and per evaluation, then a summary (rank 0 only)",
     7},
    {"print-every", PRINT_EVERY, "N", 0, "Print every N-th step (default: 1)", 7},
    {"quiet", QUIET, 0, 0, "Print only the start and the summary", 7},

    {"tell", TELL, "FD", OPTION_HIDDEN, 0, 8},
    {0},
};

const char dw_train_doc[] =
    "Trains a small GPT-2-style model on the bytes of a file, as a pipeline of stages, or as "
    "several replicas of one."
    "\v"
    "The codecs delta, direct, raw and mx are stable. All others are for\n"
    "comparison, and may change: docs/codecs.md lists them.\n"
    "\n"
    "Examples. Two stages on this machine, over a simulated network of 20 Mbit/s:\n"
    "\n"
    "  deltawire train --local 2 --text book.txt --epochs 3 --samples 240 \\\n"
    "    --held-out 64 --link shaped:rate=20mbit,delay=5ms/tcp://127.0.0.1:0 \\\n"
    "    --forward delta:bits=4 --backward direct:bits=8\n"
    "\n"
    "The same codecs on two machines:\n"
    "\n"
    "  first$  deltawire train --rank 0 --stages 2 --listen tcp://0.0.0.0:7000 \\\n"
    "            --group-key run.key --text book.txt \\\n"
    "            --forward delta:bits=4 --backward direct:bits=8\n"
    "  second$ deltawire train --rank 1 --stages 2 --connect tcp://first:7000 \\\n"
    "            --group-key run.key --text book.txt \\\n"
    "            --forward delta:bits=4 --backward direct:bits=8\n"
    "\n"
    "A stage in the middle of the pipeline gets both --listen and --connect. Two replicas\n"
    "of two stages on this machine, with everything compressed:\n"
    "\n"
    "  deltawire train --local 4 --stages 2 --replicas 2 --text book.txt \\\n"
    "    --forward delta:bits=4 --backward direct:bits=8 --gradient direct:bits=4\n"
    "\n"
    "Four stages, started by a launcher:\n"
    "\n"
    "  mpirun -n 4 deltawire train --link mpi:// --text book.txt\n"
    "  export DELTAWIRE_GROUP_KEY_FILE=run.key # made by: deltawire keygen run.key\n"
    "  srun -n 4 deltawire train --link env:// --text book.txt\n"
    "\n"
    "Exit status: 0 success, 1 the run failed, 2 wrong usage, 130 stopped by Ctrl-C (128 + N: by "
    "signal N).";
