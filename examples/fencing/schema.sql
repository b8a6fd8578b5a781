CREATE TABLE stock (
  item  integer PRIMARY KEY,
  n     integer NOT NULL CHECK (n >= 0),
  fence bigint  NOT NULL DEFAULT 0    -- never NULL: NULL <= 7 is not true
);
CREATE TABLE fences (
  lock  text   PRIMARY KEY,
  fence bigint NOT NULL
);
