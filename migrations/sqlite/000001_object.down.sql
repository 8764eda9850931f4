DROP TABLE object;
