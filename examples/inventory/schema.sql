CREATE TABLE stock (
  item  integer PRIMARY KEY,
  n     integer NOT NULL CHECK (n >= 0),
  fence bigint  NOT NULL DEFAULT 0
);
CREATE TABLE sales (
  item  integer NOT NULL REFERENCES stock,
  price integer NOT NULL,
  fence bigint  NOT NULL
);
