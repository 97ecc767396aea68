/* SPDX-License-Identifier: Apache-2.0
 * in_step.pml - for Spin: an encoder and a decoder stay in step over a bad network.
 *
 * There is one key. The network may deliver frames and replies in any order. FAULTS times something
 * more goes wrong: a frame or a reply is lost, a frame comes twice, an end is set back to an
 * earlier state (the encoder keeps its incarnation then, as a copy of a virtual machine would) or
 * begins anew, the encoder forgets the key, the decoder loses its copy, or the copy is damaged in
 * memory. Contents are numbers: each encode makes a new one, and a change that is applied to
 * another base than its own makes WRONG. The rules are those of docs/format.md (2, step 7 to 10,
 * and 6); digests never collide.
 *
 * Two things are checked: what a decoder accepts is what the encoder has; and when faults have
 * ended and the network has nothing left, at most one more frame is refused. Each of these
 * constants takes one rule away, and then an assertion fails: NO_STATE_DIGEST, NO_INCARNATION,
 * NO_LEAP (of sequence numbers, after a reply with a larger version), NO_NEW_INCARNATION (after
 * answer 3). */
#ifndef ENCODES
#define ENCODES 4
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#define WRONG 99
#define KEY 1
#define DELTA 2
#define FORGET 3
#define ACK 1
#define NACK 2
#define REPLACED 3

typedef frame { byte role, incarnation, sequence, base, made }
typedef reply { byte answer, asked, incarnation, version, chain }
/* an encoder's copies of the key: the latest, and the one that the decoder was known to have */
typedef encoder { byte incarnation, sequence, now, undo; bit is_confirmed, from_undo, from_nothing }
typedef decoder { byte incarnation, replaced, made_by, version, chain, content, drop_of, drop }

frame frames[2];
reply replies[2];
encoder e, saved_e;
decoder d, saved_d;
byte incarnations = 1, contents = 0, encodes = 0, faults = 0, phase = 0;
bit accepted;

#define IS_REPLACED(i) (d.replaced & (1 << (i)))

inline save_encoder(to, from) {
  to.incarnation = from.incarnation; to.sequence = from.sequence; to.now = from.now;
  to.undo = from.undo; to.is_confirmed = from.is_confirmed; to.from_undo = from.from_undo;
  to.from_nothing = from.from_nothing
}
inline save_decoder(to, from) {
  to.incarnation = from.incarnation; to.replaced = from.replaced; to.made_by = from.made_by;
  to.version = from.version; to.chain = from.chain; to.content = from.content;
  to.drop_of = from.drop_of; to.drop = from.drop
}
inline forget_key() {
  e.now = 0; e.undo = 0; e.is_confirmed = 0; e.from_undo = 0; e.from_nothing = 0
}
inline begin_encoder() {
  incarnations++; e.incarnation = incarnations; e.sequence = 0;
  forget_key()
}
inline encode(f) { d_step {
  contents++; e.sequence++;
  f.incarnation = e.incarnation; f.sequence = e.sequence; f.made = contents;
  if
  :: !e.now || e.from_nothing -> f.role = KEY; f.base = 0; e.undo = 0
  :: e.now && !e.from_nothing && e.from_undo -> f.role = DELTA; f.base = e.undo
  :: else ->
      f.role = DELTA; f.base = e.now;
      if :: e.is_confirmed -> e.undo = e.now :: else fi
  fi;
  e.now = contents; e.is_confirmed = 0; e.from_undo = 0; e.from_nothing = 0 } }
/* the copy goes, and with it the numbers up to its version */
inline drop_copy() {
  if :: d.drop_of != d.made_by || d.version > d.drop -> d.drop_of = d.made_by; d.drop = d.version
     :: else fi;
  d.made_by = 0; d.version = 0; d.chain = 0; d.content = 0
}
inline decode(f) { d_step {
  byte made = 0, r = 0;
  bit same = (d.made_by != 0 && d.made_by == f.incarnation);
  accepted = 0;
#ifdef NO_INCARNATION
  same = (d.made_by != 0);
#endif
  if
  :: f.role == FORGET ->
      if
      :: !IS_REPLACED(f.incarnation) ->
          if :: d.drop_of != f.incarnation || f.sequence > d.drop -> d.drop_of = f.incarnation;
                d.drop = f.sequence :: else fi;
          if :: same && d.version < f.sequence -> d.made_by = 0; d.version = 0; d.chain = 0;
                d.content = 0 :: else fi
      :: else
      fi
  :: f.role != FORGET && (IS_REPLACED(f.incarnation) || (same && f.sequence <= d.version)) -> skip
  :: else ->
      if
      :: f.role == KEY ->
          accepted = !(!same && d.drop_of == f.incarnation && f.sequence <= d.drop);
          made = f.made
      :: else ->
          accepted = (same && d.chain == f.base);
          made = (d.content == f.base -> f.made : WRONG)
      fi;
#ifndef NO_STATE_DIGEST
      if :: accepted && made != f.made -> accepted = 0; drop_copy() :: else fi;
#endif
  fi;
  if
  :: accepted ->
      if
      :: d.incarnation && d.incarnation != f.incarnation ->
          d.replaced = d.replaced | (1 << d.incarnation);
          if :: d.drop_of == d.incarnation -> d.drop_of = 0; d.drop = 0 :: else fi
      :: else
      fi;
      d.incarnation = f.incarnation; d.made_by = f.incarnation; d.version = f.sequence;
      d.chain = f.made; d.content = made;
      assert(made == f.made)
  :: else
  fi;
  if
  :: f.role != FORGET ->
      /* A copy is digested again before a refusal names it. */
      if :: !accepted && d.made_by && d.content != d.chain -> drop_copy() :: else fi;
      r = (replies[0].answer -> 1 : 0);
      if
      :: replies[r].answer -> skip /* there is no room in the network: the reply is lost */
      :: else ->
          replies[r].asked = f.incarnation;
          if
          :: (d.made_by != f.incarnation || !d.made_by) && d.drop_of == f.incarnation &&
             f.sequence <= d.drop ->
              replies[r].incarnation = f.incarnation; replies[r].version = d.drop;
              replies[r].chain = 0
          :: else -> replies[r].incarnation = d.made_by; replies[r].version = d.version;
              replies[r].chain = d.chain
          fi;
          replies[r].answer = (replies[r].chain == f.made -> ACK :
                               (IS_REPLACED(f.incarnation) -> REPLACED : NACK))
      fi
  :: else
  fi;
  made = 0; r = 0; same = 0 } }
inline take_reply(a) { d_step {
  if
  :: a.asked != e.incarnation -> skip
  :: a.asked == e.incarnation && a.answer == REPLACED ->
#ifdef NO_NEW_INCARNATION
      e.from_nothing = 1
#else
      begin_encoder()
#endif
  :: else ->
#ifndef NO_LEAP
      if :: a.incarnation == e.incarnation && a.version > e.sequence -> e.sequence = a.version
         :: else fi;
#endif
      if
      :: !e.now -> skip
      :: e.now && a.incarnation == e.incarnation && a.chain == e.now -> e.is_confirmed = 1;
          e.undo = 0; e.from_undo = 0; e.from_nothing = 0
      :: e.now && a.answer == NACK && a.incarnation == e.incarnation && e.undo &&
         a.chain == e.undo && a.chain != e.now -> e.from_undo = 1; e.from_nothing = 0
      :: else ->
          if :: a.answer == NACK -> e.from_nothing = 1 :: else fi
      fi
  fi;
  a.answer = 0; a.asked = 0; a.incarnation = 0; a.version = 0; a.chain = 0 } }
inline clear(f) { f.role = 0; f.incarnation = 0; f.sequence = 0; f.base = 0; f.made = 0 }
#define FAULT (phase == 0 && faults < FAULTS)

active proctype world() {
  byte s = 0;
  atomic { e.incarnation = 1; save_encoder(saved_e, e) }
  do
  :: atomic { phase == 0 && encodes < ENCODES && !(frames[0].role && frames[1].role) ->
      encodes++; s = (frames[0].role -> 1 : 0); encode(frames[s]) }
  :: atomic { phase < 2 && frames[0].role -> decode(frames[0]); clear(frames[0]) }
  :: atomic { phase < 2 && frames[1].role -> decode(frames[1]); clear(frames[1]) }
  :: atomic { phase < 2 && replies[0].answer -> take_reply(replies[0]) }
  :: atomic { phase < 2 && replies[1].answer -> take_reply(replies[1]) }
  :: atomic { phase == 0 && encodes -> save_encoder(saved_e, e) }
  :: atomic { phase == 0 && encodes -> save_decoder(saved_d, d) }
  /* faults */
  :: atomic { FAULT && frames[0].role -> faults++; clear(frames[0]) }
  :: atomic { FAULT && frames[0].role -> faults++; decode(frames[0]) }
  :: atomic { FAULT && replies[0].answer -> faults++; replies[0].answer = 0 }
  :: atomic { FAULT && encodes -> faults++; save_encoder(e, saved_e) }
  :: atomic { FAULT && encodes && incarnations < 4 -> faults++; begin_encoder() }
  :: atomic { FAULT && e.now && !(frames[0].role && frames[1].role) -> faults++; forget_key();
      e.sequence++; s = (frames[0].role -> 1 : 0); frames[s].role = FORGET;
      frames[s].incarnation = e.incarnation; frames[s].sequence = e.sequence }
  :: atomic { FAULT && d.incarnation -> faults++; save_decoder(d, saved_d) }
  :: atomic { FAULT && d.incarnation -> faults++; d.incarnation = 0; d.replaced = 0; d.made_by = 0;
      d.version = 0; d.chain = 0; d.content = 0; d.drop_of = 0; d.drop = 0 }
  :: atomic { FAULT && d.made_by -> faults++; drop_copy() }
  :: atomic { FAULT && d.made_by -> faults++; d.content = WRONG }
  /* faults end, and the network becomes empty */
  :: atomic { phase == 0 && encodes -> phase = 1 }
  :: atomic { phase == 1 && !frames[0].role && !frames[1].role && !replies[0].answer &&
      !replies[1].answer -> phase = 2 }
  :: atomic { phase == 2 ->
      encode(frames[0]); decode(frames[0]); take_reply(replies[0]);
      if
      :: accepted -> skip
      :: else -> encode(frames[0]); decode(frames[0]); take_reply(replies[0]); assert(accepted)
      fi;
      assert(d.chain == e.now && d.content == e.now && d.made_by == e.incarnation);
      phase = 3 }
  :: phase == 3 -> break
  od
}
