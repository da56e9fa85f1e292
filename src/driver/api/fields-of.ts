import type * as z from 'zod';

/** Shape of an object's schema with exactly the fields of `T`. */
export type FieldsOf<T> = { [Field in keyof T]-?: z.ZodType<T[Field]> };
