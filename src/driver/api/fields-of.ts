import type * as z from 'zod';

/** A schema for each field of `T` and for no other: the shape of an object's schema that satisfies it has the same fields. */
export type FieldsOf<T> = { [Field in keyof T]-?: z.ZodType<T[Field]> };
