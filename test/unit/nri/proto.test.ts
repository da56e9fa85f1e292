import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createPlugin, defaultProtoDir } from '../../../nri/index.ts';
import { createTtrpcCodec } from '../../../nri/ttrpc/codec.ts';
import { createNriCodec } from '../../../nri/wire.ts';

describe('loadMessages', () => {
  it('finds the protobuf files in the source tree and in a given directory', () => {
    expect(() => createNriCodec()).not.toThrow();
    expect(() => createPlugin({ name: 'a', index: '00', handlers: {}, protoDir: defaultProtoDir() })).not.toThrow();
  });

  it('names a missing file and the remedy', () => {
    expect(() => createTtrpcCodec('/nowhere')).toThrow(
      expect.objectContaining({
        code: 'proto-not-loaded',
        message: 'cannot load /nowhere/ttrpc.proto',
        hint: expect.stringContaining('protoDir'),
      }),
    );
  });

  it('reports a file that is not the expected protobuf definition', () => {
    const directory = mkdtempSync(join(tmpdir(), 'nri-proto-'));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    writeFileSync(join(directory, 'ttrpc.proto'), 'syntax = "proto3"; package ttrpc; service Request {}');
    expect(() => createTtrpcCodec(directory)).toThrow(expect.objectContaining({ code: 'proto-type-missing' }));
  });
});
